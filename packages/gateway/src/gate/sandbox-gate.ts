/**
 * The door of one sandbox: who waits in front of it, who is inside, and whether it is closed. The engine closes
 * it to pause the sandbox and opens it again; the first in line then wakes what sleeps behind it.
 */
import type { Address, AgentAddress, Clock } from '@torpor/engine';
import { type SandboxId, TorporError } from '@torpor/protocol';
import { AGENT_PORT } from '../route/route.ts';
import type { Sandboxes, SandboxFacts } from '../sandboxes.ts';
import type { GatewaySettings } from '../settings.ts';
import {
  AdmissionQueue,
  type Admits2,
  type GateEpoch,
  type PortGrace,
  type QueueGate,
} from './admission-queue.ts';
import { ensureRunning } from './ensure-running.ts';
import type { ActiveExchange, Exchange } from './exchange.ts';
import { HeldRequestBudget, tooManyHeld } from './held-request-budget.ts';
import {
  heldTooLong,
  notDispatched,
  portClosed,
  serverStopping,
  stillStarting,
  tooManyActive,
} from './refusals.ts';
import { TrafficLease } from './traffic-lease.ts';

export interface SandboxGateParts {
  readonly sandboxes: Sandboxes;
  readonly clock: Clock;
  readonly settings: GatewaySettings;
  readonly holdingOverall: HeldRequestBudget;
  /** Fires when the server stops. */
  readonly stopping: AbortSignal;
  readonly observe: GateObserver;
}

/** For figures and logs; never for decisions. */
export interface GateObserver {
  woken(id: SandboxId, ms: number, error: TorporError | undefined): void;
}

interface Failure {
  readonly error: TorporError;
  readonly at: number;
}

export class SandboxGate implements QueueGate {
  readonly id: SandboxId;
  readonly clock: Clock;
  readonly settings: GatewaySettings;
  /** What was last seen of the sandbox; enough to know who may come in. */
  facts: SandboxFacts | undefined;
  epoch: GateEpoch | undefined;
  admits: Admits2 = 'everybody';
  readonly holding: HeldRequestBudget;
  private readonly parts: SandboxGateParts;
  private readonly lines = new Map<number, AdmissionQueue>();
  private readonly passing = new Set<ActiveExchange>();
  private readonly lease: TrafficLease;
  private readonly onIdle: (door: SandboxGate) => void;
  private shut: PromiseWithResolvers<void> | undefined;
  private isBringing = false;
  private isWanted = false;
  private failure: Failure | undefined;
  private onChange: () => void = () => {};

  constructor(id: SandboxId, parts: SandboxGateParts, onIdle: (door: SandboxGate) => void) {
    this.id = id;
    this.parts = parts;
    this.clock = parts.clock;
    this.settings = parts.settings;
    this.onIdle = onIdle;
    const { heldPerSandbox, heldBytesPerSandbox, quietMs } = parts.settings;
    this.holding = new HeldRequestBudget(
      { count: heldPerSandbox, bytes: heldBytesPerSandbox },
      parts.holdingOverall,
    );
    const hold = () => parts.sandboxes.hold(id);
    this.lease = new TrafficLease(parts.clock, quietMs, hold, () => this.releaseIfUnused(), parts.stopping);
  }

  get isClosed(): boolean {
    return this.shut !== undefined;
  }

  /** Whether the server stops: connections are not kept. */
  get isStopping(): boolean {
    return this.parts.stopping.aborted;
  }

  get isWaking(): boolean {
    return this.isBringing;
  }

  /** Whether something is under way that ends with an open port, so that it makes sense to show how far it is. */
  isStartingUp(port: number): boolean {
    return this.epoch === undefined || this.portGraceOf(this.epoch, port).starting !== undefined;
  }

  /** Why the sandbox could not be woken last time; undefined when it could, or nobody has tried. */
  get lastFailure(): TorporError | undefined {
    return this.failure?.error;
  }

  /** Passes it on at once, or holds it until its turn has come. */
  enter(port: number, passage: Exchange): void {
    if (this.parts.stopping.aborted) return void passage.refuse(serverStopping());
    if (this.passing.size >= this.settings.passingPerSandbox)
      return void passage.refuse(tooManyActive(this.id));
    const line = this.line(port);
    const free = line.takeAtOnce();
    if (free !== undefined) return void passage.begin(free);
    if (!this.holding.hasRoomFor(passage.heldBytes)) return void passage.refuse(tooManyHeld());
    this.hold(passage);
    line.join(passage);
  }

  /** A request whose connection was dead before it had arrived: nobody has seen it, and it keeps its place. */
  reenter(port: number, passage: Exchange): void {
    if (this.parts.stopping.aborted) return void passage.refuse(serverStopping());
    this.hold(passage);
    this.line(port).joinFirst(passage);
  }

  /** The passage is not wanted any more. False when it is not in line. */
  leave(port: number, passage: Exchange): boolean {
    return this.lines.get(port)?.leave(passage) ?? false;
  }

  /** Wakes the sandbox as soon as it may be, though nobody waits in line for it. */
  requestWake(): void {
    this.isWanted = true;
    if (!this.isClosed && this.epoch === undefined) this.ensureRunning();
  }

  /** What is seen of the sandbox from elsewhere; a sandbox that runs can be gone to. */
  noteSandbox(sandbox: SandboxFacts): void {
    this.facts = sandbox;
    if (sandbox.state === 'running' && !this.isClosed) this.epoch ??= { sandbox };
  }

  exchangeStarted(passing: ActiveExchange): void {
    this.passing.add(passing);
    // A WebSocket may open while a pause waits for those inside.
    if (this.isClosed || this.isStopping) passing.askToEnd();
  }

  exchangeEnded(passing: ActiveExchange): void {
    this.passing.delete(passing);
    this.onChange();
    this.releaseIfUnused();
  }

  /** Something inside has changed that a pause may wait for. */
  exchangeChanged(): void {
    this.onChange();
  }

  /** Bytes have moved. */
  bytesMoved(): void {
    this.lease.moved();
  }

  /** Somebody inside has to be waited for, or (-1) not any more. */
  awaitingResponse(change: 1 | -1): void {
    this.lease.wait(change);
  }

  /** Who comes now has to wait. Who waited may still pass: a pause soon after each wake would starve them. */
  close(): void {
    if (this.shut !== undefined) return;
    this.shut = Promise.withResolvers();
    this.admits = 'earlier';
    for (const line of this.lines.values()) line.closing();
  }

  /** Resolves when nothing is inside that a pause has to wait for, or the signal fires. */
  async drain(signal: AbortSignal): Promise<void> {
    for (const passing of this.passing) passing.askToEnd();
    const isQuiet = (passing: ActiveExchange) => passing.isQuiet(this.clock.monotonic());
    const isCalm = () =>
      [...this.passing].every(isQuiet) && ![...this.lines.values()].some((line) => line.isMoving);
    while (!signal.aborted && !isCalm()) {
      const changed = new AbortController();
      this.onChange = () => changed.abort();
      await this.clock
        .sleep(this.settings.drainQuietMs / 4, AbortSignal.any([signal, changed.signal]))
        .catch(() => {});
    }
    this.onChange = () => {};
    if (this.isClosed) this.admits = 'nobody';
  }

  cut(): void {
    if (this.isClosed) this.admits = 'nobody';
    this.epoch = undefined;
    for (const passing of [...this.passing]) passing.cut();
    for (const line of this.lines.values()) line.dropIdle();
  }

  open(): void {
    this.epoch = undefined;
    for (const line of this.lines.values()) line.dropIdle();
    this.failure = undefined;
    this.shut?.resolve();
    this.shut = undefined;
    this.admits = 'everybody';
    if (this.isWanted) this.ensureRunning();
    for (const line of this.lines.values()) line.pump();
    this.releaseIfUnused();
  }

  /** Nobody who waits will be let in any more. */
  refuseAll(error: TorporError): void {
    for (const line of this.lines.values()) line.refuseAll(error);
  }

  ensureRunning(): void {
    if (this.isBringing || this.isClosed || this.parts.stopping.aborted) return;
    const { failure, clock } = this;
    if (failure !== undefined && clock.monotonic() - failure.at < this.settings.failureMs) {
      return void this.refuseAll(failure.error);
    }
    this.isBringing = true;
    this.isWanted = false;
    this.reach().then(
      (sandbox) => {
        this.isBringing = false;
        this.failure = undefined;
        // A door that was closed meanwhile begins anew when it opens.
        if (this.isClosed) return;
        this.noteSandbox(sandbox);
        for (const line of this.lines.values()) line.pump();
      },
      (thrown: unknown) => {
        this.isBringing = false;
        const error = notDispatched(TorporError.from(thrown), this.id);
        this.failure = { error, at: clock.monotonic() };
        this.refuseAll(error);
        this.releaseIfUnused();
      },
    );
  }

  epochEnded(era: GateEpoch): void {
    if (this.epoch === era) this.epoch = undefined;
  }

  dial({ sandbox }: GateEpoch, port: number): Promise<Address | AgentAddress | null> {
    const { sandboxes } = this.parts;
    return port === AGENT_PORT ? sandboxes.agent(sandbox) : sandboxes.dial(sandbox, port);
  }

  portGraceOf({ sandbox }: GateEpoch, port: number): PortGrace {
    const { startingMs, portGraceMs } = this.settings;
    const age = sandbox.startedAt === null ? 0 : this.clock.now() - sandbox.startedAt;
    const service = sandbox.services.find((one) => one.port === port);
    if (service !== undefined && age < startingMs) return { ms: startingMs - age, starting: service.name };
    return { ms: service !== undefined || age < portGraceMs ? portGraceMs : 0, starting: undefined };
  }

  async explainClosed({ sandbox }: GateEpoch, port: number, { starting }: PortGrace): Promise<TorporError> {
    if (starting !== undefined) return stillStarting(this.id, port, starting);
    const open = await this.parts.sandboxes.openPorts(sandbox).catch(() => []);
    return portClosed(this.id, port, open);
  }

  leftQueue(passage: Exchange): void {
    this.holding.remove(passage.heldBytes);
    if (passage.countsAsUse) this.lease.wait(-1);
    this.onChange();
  }

  private hold(passage: Exchange): void {
    this.holding.add(passage.heldBytes);
    if (passage.countsAsUse) this.lease.wait(1);
  }

  /** However long nobody answers: after its time the sandbox is looked at afresh, by whoever waits then. */
  private async reach(): Promise<SandboxFacts> {
    const { clock, settings, stopping } = this.parts;
    const late = new AbortController();
    const done = new AbortController();
    const { wakeMs } = settings;
    clock.sleep(wakeMs, AbortSignal.any([done.signal, stopping])).then(
      () => late.abort(heldTooLong(this.id, wakeMs)),
      () => {
        if (stopping.aborted) late.abort(serverStopping());
      },
    );
    const sandboxes = {
      find: (id: SandboxId) => this.parts.sandboxes.find(id),
      wake: (sandbox: SandboxFacts, signal: AbortSignal) => this.wake(sandbox, signal),
    };
    const untilOpen = () => this.shut?.promise ?? Promise.resolve();
    try {
      return await ensureRunning({ sandboxes, clock, settings, untilOpen }, this.id, late.signal);
    } finally {
      done.abort();
    }
  }

  private async wake(sandbox: SandboxFacts, signal: AbortSignal): Promise<void> {
    const { sandboxes, clock, observe } = this.parts;
    const began = clock.monotonic();
    try {
      await sandboxes.wake(sandbox, signal);
      observe.woken(this.id, clock.monotonic() - began, undefined);
    } catch (thrown) {
      const error = TorporError.from(thrown);
      if (error.code !== 'transitioning') observe.woken(this.id, clock.monotonic() - began, error);
      throw error;
    }
  }

  private line(port: number): AdmissionQueue {
    const known = this.lines.get(port) ?? new AdmissionQueue(port, this);
    this.lines.set(port, known);
    return known;
  }

  releaseIfUnused(): void {
    for (const [port, line] of this.lines) if (line.isEmpty) this.lines.delete(port);
    const isInUse =
      this.lines.size > 0 || this.passing.size > 0 || this.isClosed || this.isBringing || this.lease.isHeld;
    if (!isInUse) this.onIdle(this);
  }
}

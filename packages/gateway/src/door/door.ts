/**
 * The door of one sandbox: who waits in front of it, who is inside, and whether it is closed. The engine closes
 * it to pause the sandbox and opens it again; the first in line then wakes what sleeps behind it.
 */
import type { Address, AgentAddress, Clock } from '@torpor/engine';
import { type SandboxId, TorporError } from '@torpor/protocol';
import { AGENT_PORT } from '../route/route.ts';
import type { Sandboxes, SandboxFacts } from '../sandboxes.ts';
import type { GatewaySettings } from '../settings.ts';
import { Holding, tooManyHeld } from './holding.ts';
import { TrafficLease } from './lease.ts';
import { type Admits, type Era, type Hope, Line, type LineDoor } from './line.ts';
import type { Passage, Passing } from './passage.ts';
import { reach } from './reach.ts';
import {
  heldTooLong,
  notDispatched,
  portClosed,
  serverStops,
  stillStarting,
  tooManyPassing,
} from './refusals.ts';

export interface DoorParts {
  readonly sandboxes: Sandboxes;
  readonly clock: Clock;
  readonly settings: GatewaySettings;
  readonly holdingOverall: Holding;
  /** Fires when the server stops. */
  readonly stopping: AbortSignal;
  readonly observe: DoorObserver;
}

/** For figures and logs; never for decisions. */
export interface DoorObserver {
  woken(id: SandboxId, ms: number, error: TorporError | undefined): void;
}

interface Failure {
  readonly error: TorporError;
  readonly at: number;
}

export class Door implements LineDoor {
  readonly id: SandboxId;
  readonly clock: Clock;
  readonly settings: GatewaySettings;
  /** What was last seen of the sandbox; enough to know who may come in. */
  facts: SandboxFacts | undefined;
  era: Era | undefined;
  admits: Admits = 'everybody';
  readonly holding: Holding;
  private readonly parts: DoorParts;
  private readonly lines = new Map<number, Line>();
  private readonly passing = new Set<Passing>();
  private readonly lease: TrafficLease;
  private readonly onIdle: (door: Door) => void;
  private shut: PromiseWithResolvers<void> | undefined;
  private isBringing = false;
  private isWanted = false;
  private failure: Failure | undefined;
  private onChange: () => void = () => {};

  constructor(id: SandboxId, parts: DoorParts, onIdle: (door: Door) => void) {
    this.id = id;
    this.parts = parts;
    this.clock = parts.clock;
    this.settings = parts.settings;
    this.onIdle = onIdle;
    const { heldPerSandbox, heldBytesPerSandbox, quietMs } = parts.settings;
    this.holding = new Holding({ count: heldPerSandbox, bytes: heldBytesPerSandbox }, parts.holdingOverall);
    const hold = () => parts.sandboxes.hold(id);
    this.lease = new TrafficLease(parts.clock, quietMs, hold, () => this.tidy(), parts.stopping);
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
  isComingUp(port: number): boolean {
    return this.era === undefined || this.hopeFor(this.era, port).starting !== undefined;
  }

  /** Why the sandbox could not be woken last time; undefined when it could, or nobody has tried. */
  get lastFailure(): TorporError | undefined {
    return this.failure?.error;
  }

  /** Passes it on at once, or holds it until its turn has come. */
  enter(port: number, passage: Passage): void {
    if (this.parts.stopping.aborted) return void passage.refuse(serverStops());
    if (this.passing.size >= this.settings.passingPerSandbox)
      return void passage.refuse(tooManyPassing(this.id));
    const line = this.line(port);
    const free = line.takeAtOnce();
    if (free !== undefined) return void passage.begin(free);
    if (!this.holding.hasRoomFor(passage.heldBytes)) return void passage.refuse(tooManyHeld());
    this.hold(passage);
    line.join(passage);
  }

  /** A request whose connection was dead before it had arrived: nobody has seen it, and it keeps its place. */
  enterAgain(port: number, passage: Passage): void {
    if (this.parts.stopping.aborted) return void passage.refuse(serverStops());
    this.hold(passage);
    this.line(port).joinFirst(passage);
  }

  /** The passage is not wanted any more. False when it is not in line. */
  leave(port: number, passage: Passage): boolean {
    return this.lines.get(port)?.leave(passage) ?? false;
  }

  /** Wakes the sandbox as soon as it may be, though nobody waits in line for it. */
  want(): void {
    this.isWanted = true;
    if (!this.isClosed && this.era === undefined) this.bring();
  }

  /** What is seen of the sandbox from elsewhere; a sandbox that runs can be gone to. */
  see(sandbox: SandboxFacts): void {
    this.facts = sandbox;
    if (sandbox.state === 'running' && !this.isClosed) this.era ??= { sandbox };
  }

  begun(passing: Passing): void {
    this.passing.add(passing);
    // A WebSocket may open while a pause waits for those inside.
    if (this.isClosed || this.isStopping) passing.askToEnd();
  }

  ended(passing: Passing): void {
    this.passing.delete(passing);
    this.onChange();
    this.tidy();
  }

  /** Something inside has changed that a pause may wait for. */
  changed(): void {
    this.onChange();
  }

  /** Bytes have moved. */
  moved(): void {
    this.lease.moved();
  }

  /** Somebody inside has to be waited for, or (-1) not any more. */
  answering(change: 1 | -1): void {
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
    const isQuiet = (passing: Passing) => passing.isQuiet(this.clock.monotonic());
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
    this.era = undefined;
    for (const passing of [...this.passing]) passing.cut();
    for (const line of this.lines.values()) line.dropIdle();
  }

  open(): void {
    this.era = undefined;
    for (const line of this.lines.values()) line.dropIdle();
    this.failure = undefined;
    this.shut?.resolve();
    this.shut = undefined;
    this.admits = 'everybody';
    if (this.isWanted) this.bring();
    for (const line of this.lines.values()) line.pump();
    this.tidy();
  }

  /** Nobody who waits will be let in any more. */
  refuseAll(error: TorporError): void {
    for (const line of this.lines.values()) line.refuseAll(error);
  }

  bring(): void {
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
        this.see(sandbox);
        for (const line of this.lines.values()) line.pump();
      },
      (thrown: unknown) => {
        this.isBringing = false;
        const error = notDispatched(TorporError.from(thrown), this.id);
        this.failure = { error, at: clock.monotonic() };
        this.refuseAll(error);
        this.tidy();
      },
    );
  }

  doubt(era: Era): void {
    if (this.era === era) this.era = undefined;
  }

  dial({ sandbox }: Era, port: number): Promise<Address | AgentAddress | null> {
    const { sandboxes } = this.parts;
    return port === AGENT_PORT ? sandboxes.agent(sandbox) : sandboxes.dial(sandbox, port);
  }

  hopeFor({ sandbox }: Era, port: number): Hope {
    const { startingMs, portGraceMs } = this.settings;
    const age = sandbox.startedAt === null ? 0 : this.clock.now() - sandbox.startedAt;
    const service = sandbox.services.find((one) => one.port === port);
    if (service !== undefined && age < startingMs) return { ms: startingMs - age, starting: service.name };
    return { ms: service !== undefined || age < portGraceMs ? portGraceMs : 0, starting: undefined };
  }

  async explainClosed({ sandbox }: Era, port: number, { starting }: Hope): Promise<TorporError> {
    if (starting !== undefined) return stillStarting(this.id, port, starting);
    const open = await this.parts.sandboxes.openPorts(sandbox).catch(() => []);
    return portClosed(this.id, port, open);
  }

  left(passage: Passage): void {
    this.holding.remove(passage.heldBytes);
    if (passage.isUse) this.lease.wait(-1);
    this.onChange();
  }

  private hold(passage: Passage): void {
    this.holding.add(passage.heldBytes);
    if (passage.isUse) this.lease.wait(1);
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
        if (stopping.aborted) late.abort(serverStops());
      },
    );
    const sandboxes = {
      find: (id: SandboxId) => this.parts.sandboxes.find(id),
      wake: (sandbox: SandboxFacts, signal: AbortSignal) => this.wake(sandbox, signal),
    };
    const untilOpen = () => this.shut?.promise ?? Promise.resolve();
    try {
      return await reach({ sandboxes, clock, settings, untilOpen }, this.id, late.signal);
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

  private line(port: number): Line {
    const known = this.lines.get(port) ?? new Line(port, this);
    this.lines.set(port, known);
    return known;
  }

  tidy(): void {
    for (const [port, line] of this.lines) if (line.isEmpty) this.lines.delete(port);
    const isInUse =
      this.lines.size > 0 || this.passing.size > 0 || this.isClosed || this.isBringing || this.lease.isHeld;
    if (!isInUse) this.onIdle(this);
  }
}

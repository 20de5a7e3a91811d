/**
 * The traffic gate of one sandbox: it admits requests, counts the exchanges that are under way, and wakes a sandbox
 * that sleeps. The engine closes the gate to pause the sandbox, and opens it afterwards.
 */
import type { Address, AgentAddress, Clock } from '@torpor/engine';
import { type SandboxId, TorporError } from '@torpor/protocol';
import { AGENT_PORT } from '../route/route.ts';
import type { SandboxDirectory, SandboxInfo } from '../sandbox-directory.ts';
import type { GatewaySettings } from '../settings.ts';
import { AdmissionQueue, type Admits, type QueueGate } from './admission-queue.ts';
import { ensureRunning } from './ensure-running.ts';
import type { ActiveExchange, Exchange, ExchangeGate } from './exchange.ts';
import {
  type GateEvent,
  type GateModeName,
  gateModeAfter,
  INITIAL_GATE_MODE,
  type SandboxRun,
  type WakeEvent,
  type WakeMode,
  wakeModeAfter,
} from './gate-mode.ts';
import type { PortGrace } from './port-mode.ts';
import { QueuedRequestBudget, tooManyQueued } from './queued-request-budget.ts';
import {
  badAppResponse,
  cutByPause,
  notDispatched,
  portClosed,
  queuedTooLong,
  serverStopping,
  stillStarting,
  tooManyActive,
} from './refusals.ts';
import { TrafficLease } from './traffic-lease.ts';

export interface SandboxGateParts {
  readonly sandboxes: SandboxDirectory;
  readonly clock: Clock;
  readonly settings: GatewaySettings;
  /** Shared by all gates. */
  readonly overallBudget: QueuedRequestBudget;
  /** Fires when the server stops. */
  readonly stopping: AbortSignal;
  readonly observe: GateObserver;
}

/** For metrics and logs; never for decisions. */
export interface GateObserver {
  woken(id: SandboxId, ms: number, error: TorporError | undefined): void;
}

const ADMITS: Readonly<Record<GateModeName, Admits>> = {
  unknown: 'all',
  open: 'all',
  draining: 'queued_before_close',
  closed: 'none',
};

export class SandboxGate implements QueueGate, ExchangeGate {
  readonly id: SandboxId;
  readonly clock: Clock;
  readonly settings: GatewaySettings;
  readonly #parts: SandboxGateParts;
  readonly #budget: QueuedRequestBudget;
  /** One per port. */
  readonly #queues = new Map<number, AdmissionQueue>();
  readonly #active = new Set<ActiveExchange>();
  readonly #lease: TrafficLease;
  readonly #onUnused: (gate: SandboxGate) => void;
  #info: SandboxInfo | undefined;
  #mode = INITIAL_GATE_MODE;
  #wake: WakeMode = { name: 'idle' };
  /** A wake was requested by a client that is not queued. Survives close and open. */
  #wakeRequested = false;
  /** Resolves when the gate that was closed last opens. */
  #opened = Promise.withResolvers<void>();
  /** Makes a drain look again at what it waits for. */
  #notifyDrain: () => void = () => {};

  constructor(id: SandboxId, parts: SandboxGateParts, onUnused: (gate: SandboxGate) => void) {
    this.id = id;
    this.#parts = parts;
    this.clock = parts.clock;
    this.settings = parts.settings;
    this.#onUnused = onUnused;
    const { heldPerSandbox, heldBytesPerSandbox, quietMs } = parts.settings;
    this.#budget = new QueuedRequestBudget(
      { count: heldPerSandbox, bytes: heldBytesPerSandbox },
      parts.overallBudget,
    );
    const takeLease = () => parts.sandboxes.keepAwake(id);
    this.#lease = new TrafficLease(
      parts.clock,
      quietMs,
      takeLease,
      () => this.releaseIfUnused(),
      parts.stopping,
    );
  }

  /** What was last seen of the sandbox; enough to check access. Fields that can change may be out of date. */
  get info(): SandboxInfo | undefined {
    return this.#info;
  }

  get run(): SandboxRun | undefined {
    return this.#mode.run;
  }

  get admits(): Admits {
    return ADMITS[this.#mode.name];
  }

  get isClosed(): boolean {
    return this.#mode.name === 'draining' || this.#mode.name === 'closed';
  }

  /** Whether the server stops: client connections are not kept alive. */
  get isStopping(): boolean {
    return this.#parts.stopping.aborted;
  }

  get isWaking(): boolean {
    return this.#wake.name === 'waking';
  }

  /** Why the last attempt to wake the sandbox failed; undefined when it succeeded, or there was none. */
  get lastFailure(): TorporError | undefined {
    return this.#wake.name === 'failed' ? this.#wake.error : undefined;
  }

  /** Whether something is under way that ends with an open port, so that it makes sense to show progress. */
  isStartingUp(port: number): boolean {
    const { run } = this;
    return run === undefined || this.portGraceOf(run, port).starting !== undefined;
  }

  /** Dispatches the exchange at once, or puts it into the queue of its port. */
  submit(port: number, exchange: Exchange): void {
    if (this.isStopping) return void exchange.refuse(serverStopping());
    if (this.#active.size >= this.settings.passingPerSandbox)
      return void exchange.refuse(tooManyActive(this.id));
    const queue = this.#queueOf(port);
    const idle = queue.takeIdleIfFirst();
    if (idle !== undefined) return void exchange.dispatch(idle);
    if (!this.#budget.hasRoomFor(exchange.queuedBytes)) return void exchange.refuse(tooManyQueued());
    this.#countQueued(exchange);
    queue.enqueue(exchange);
  }

  /** For a request whose connection was dead before the request arrived: no app has seen it, and it keeps its place. */
  resubmit(port: number, exchange: Exchange): void {
    if (this.isStopping) return void exchange.refuse(serverStopping());
    this.#countQueued(exchange);
    this.#queueOf(port).enqueueFirst(exchange);
  }

  /** Takes the exchange out of its queue. False when it is in none. */
  withdraw(port: number, exchange: Exchange): boolean {
    return this.#queues.get(port)?.withdraw(exchange) ?? false;
  }

  /** Wakes the sandbox as soon as the gate is open, though no request waits in a queue. Does nothing while a wake is under way. */
  requestWake(): void {
    if (this.isClosed) this.#wakeRequested = true;
    else if (this.run === undefined) this.wake();
  }

  /** Updates what the gate knows of the sandbox, as another reader has seen it. */
  updateSandbox(sandbox: SandboxInfo): void {
    this.#info = sandbox;
    if (sandbox.state === 'running') this.#setMode('running', sandbox);
  }

  exchangeStarted(exchange: ActiveExchange): void {
    this.#active.add(exchange);
    // A WebSocket may open while a pause drains the gate.
    if (this.isClosed || this.isStopping) exchange.askToEnd();
  }

  exchangeEnded(exchange: ActiveExchange): void {
    this.#active.delete(exchange);
    this.#notifyDrain();
    this.releaseIfUnused();
  }

  /** An active exchange may have become quiet. */
  exchangeChanged(): void {
    this.#notifyDrain();
  }

  bytesMoved(): void {
    this.#lease.bytesMoved();
  }

  /** An active exchange begins to wait for its response, or (-1) stops waiting. */
  awaitingResponse(change: 1 | -1): void {
    this.#lease.countWaiting(change);
  }

  cutError(): TorporError {
    return cutByPause(this.id);
  }

  brokenError(port: number, cause: unknown): TorporError {
    // A sandbox that is paused may reset its connections before the gate aborts the exchanges.
    return this.isClosed ? cutByPause(this.id) : badAppResponse(this.id, port, cause);
  }

  exchangeLeftQueue(exchange: Exchange): void {
    this.#budget.remove(exchange.queuedBytes);
    if (exchange.countsAsUse) this.#lease.countWaiting(-1);
    this.#notifyDrain();
  }

  /** Queues new requests. Requests that are queued already may still pass: otherwise repeated pauses could starve them. */
  close(): void {
    if (this.isClosed) return;
    this.#opened = Promise.withResolvers();
    this.#setMode('close');
    for (const queue of this.#queues.values()) queue.gateClosed();
  }

  /** Resolves when no exchange is left that a pause has to wait for, or the signal fires. */
  async drain(signal: AbortSignal): Promise<void> {
    for (const exchange of this.#active) exchange.askToEnd();
    while (!signal.aborted && !this.#isDrained()) {
      const changed = new AbortController();
      this.#notifyDrain = () => changed.abort();
      await this.clock
        .sleep(this.settings.drainQuietMs / 4, AbortSignal.any([signal, changed.signal]))
        .catch(() => {});
    }
    this.#notifyDrain = () => {};
    this.#setMode('drained');
    // Otherwise the freeze runs a program to reset these connections.
    for (const queue of this.#queues.values()) queue.dropIdle();
  }

  #isDrained(): boolean {
    const now = this.clock.monotonic();
    return (
      [...this.#active].every((exchange) => exchange.isQuiet(now)) &&
      ![...this.#queues.values()].some((queue) => queue.isMoving)
    );
  }

  /** Aborts every exchange and resets every connection from the gateway into the sandbox. */
  abortExchanges(): void {
    this.#setMode('exchanges_aborted');
    for (const exchange of [...this.#active]) exchange.abort();
    for (const queue of this.#queues.values()) queue.dropIdle();
  }

  /** Admits requests again. What the gate knew about the sandbox is forgotten: the pause may have changed it. */
  open(): void {
    this.#setMode('open');
    this.#setWake({ type: 'gate_opened' });
    for (const queue of this.#queues.values()) queue.dropIdle();
    this.#opened.resolve();
    if (this.#wakeRequested) this.wake();
    for (const queue of this.#queues.values()) queue.advance();
    this.releaseIfUnused();
  }

  /** Answers every queued request with the error. */
  refuseAll(error: TorporError): void {
    for (const queue of this.#queues.values()) queue.refuseAll(error);
  }

  wake(): void {
    if (this.isWaking || this.isClosed || this.isStopping) return;
    if (this.#wake.name === 'failed') {
      const { error, at } = this.#wake;
      if (this.clock.monotonic() - at < this.settings.failureMs) return void this.refuseAll(error);
    }
    this.#wakeRequested = false;
    this.#setWake({ type: 'started' });
    this.#findRunning().then(
      (sandbox) => {
        this.#setWake({ type: 'succeeded' });
        // The gate was closed meanwhile: `open` wakes the sandbox again if requests wait.
        if (this.isClosed) return;
        this.updateSandbox(sandbox);
        for (const queue of this.#queues.values()) queue.advance();
      },
      (thrown: unknown) => {
        const error = notDispatched(TorporError.from(thrown), this.id);
        this.#setWake({ type: 'failed', error, at: this.clock.monotonic() });
        this.refuseAll(error);
        this.releaseIfUnused();
      },
    );
  }

  endRun(run: SandboxRun): void {
    if (this.run === run) this.#setMode('run_ended');
  }

  dial({ sandbox }: SandboxRun, port: number): Promise<Address | AgentAddress | null> {
    const { sandboxes } = this.#parts;
    return port === AGENT_PORT ? sandboxes.agent(sandbox) : sandboxes.dial(sandbox, port);
  }

  portGraceOf({ sandbox }: SandboxRun, port: number): PortGrace {
    const { startingMs, portGraceMs } = this.settings;
    const age = sandbox.startedAt === null ? 0 : this.clock.now() - sandbox.startedAt;
    const service = sandbox.services.find((declared) => declared.port === port);
    if (service !== undefined && age < startingMs) return { ms: startingMs - age, starting: service.name };
    return { ms: service !== undefined || age < portGraceMs ? portGraceMs : 0, starting: undefined };
  }

  async explainClosedPort(
    { sandbox }: SandboxRun,
    port: number,
    { starting }: PortGrace,
  ): Promise<TorporError> {
    if (starting !== undefined) return stillStarting(this.id, port, starting);
    const openPorts = await this.#parts.sandboxes.openPorts(sandbox).catch(() => []);
    return portClosed(this.id, port, openPorts);
  }

  /** Removes empty queues, and the gate itself when nothing needs it. */
  releaseIfUnused(): void {
    for (const [port, queue] of this.#queues) if (queue.isEmpty) this.#queues.delete(port);
    const isInUse =
      this.#queues.size > 0 || this.#active.size > 0 || this.isClosed || this.isWaking || this.#lease.isHeld;
    if (!isInUse) this.#onUnused(this);
  }

  /** The only place that changes the gate's mode; `gate-mode.ts` has the table. */
  #setMode(event: GateEvent, seen?: SandboxInfo): void {
    this.#mode = gateModeAfter(this.#mode, event, seen);
  }

  /** The only place that changes the mode of the wake attempt. */
  #setWake(event: WakeEvent): void {
    this.#wake = wakeModeAfter(this.#wake, event);
  }

  #countQueued(exchange: Exchange): void {
    this.#budget.add(exchange.queuedBytes);
    if (exchange.countsAsUse) this.#lease.countWaiting(1);
  }

  /** Gives up after `wakeMs`; the next request then starts a new attempt. */
  async #findRunning(): Promise<SandboxInfo> {
    const { clock, settings, stopping } = this.#parts;
    const late = new AbortController();
    const done = new AbortController();
    const { wakeMs } = settings;
    clock.sleep(wakeMs, AbortSignal.any([done.signal, stopping])).then(
      () => late.abort(queuedTooLong(this.id, wakeMs)),
      () => {
        if (stopping.aborted) late.abort(serverStopping());
      },
    );
    const sandboxes = {
      find: (id: SandboxId) => this.#parts.sandboxes.find(id),
      wake: (sandbox: SandboxInfo, signal: AbortSignal) => this.#observedWake(sandbox, signal),
    };
    const untilOpen = () => (this.isClosed ? this.#opened.promise : Promise.resolve());
    try {
      return await ensureRunning({ sandboxes, clock, settings, untilOpen }, this.id, late.signal);
    } finally {
      done.abort();
    }
  }

  async #observedWake(sandbox: SandboxInfo, signal: AbortSignal): Promise<void> {
    const { sandboxes, clock, observe } = this.#parts;
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

  #queueOf(port: number): AdmissionQueue {
    const queue = this.#queues.get(port) ?? new AdmissionQueue(port, this);
    this.#queues.set(port, queue);
    return queue;
  }
}

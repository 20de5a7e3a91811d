/**
 * The admission queue of one sandbox port. A request that finds an open gate, an empty queue and an idle connection
 * is dispatched at once. Every other request waits here, and connections are handed out in order of arrival. A
 * request that waits for a closed gate and a request that waits for a connection are in the same queue.
 */
import type { Address, AgentAddress, Clock } from '@torpor/engine';
import type { TorporError } from '@torpor/protocol';
import type { GatewaySettings } from '../settings.ts';
import { connect, PortClosed } from '../upstream/connect.ts';
import { Connection, type ConnectionOwner } from '../upstream/connection.ts';
import type { Exchange } from './exchange.ts';
import type { SandboxRun } from './gate-mode.ts';
import {
  INITIAL_PORT_MODE,
  modeInRun,
  type PortEvent,
  type PortGrace,
  type PortMode,
  portModeAfter,
  type RunningPortGrace,
} from './port-mode.ts';
import { notRunning } from './refusals.ts';

/** Which queued requests may be dispatched. */
export type Admits = 'all' | 'queued_before_close' | 'none';

/** What an admission queue asks of its gate. */
export interface QueueGate {
  readonly clock: Clock;
  readonly settings: GatewaySettings;
  /** The present run of the sandbox; undefined when the gate does not know of one. */
  readonly run: SandboxRun | undefined;
  readonly admits: Admits;
  /** Finds out whether the sandbox runs, wakes it if not, and advances all queues. */
  wake(): void;
  /** The sandbox is not the run that the gate knew: the next request looks at it again. */
  endRun(run: SandboxRun): void;
  dial(run: SandboxRun, port: number): Promise<Address | AgentAddress | null>;
  portGraceOf(run: SandboxRun, port: number): PortGrace;
  explainClosedPort(run: SandboxRun, port: number, grace: PortGrace): Promise<TorporError>;
  /** The exchange was dispatched, refused or given up by its client. */
  exchangeLeftQueue(exchange: Exchange): void;
  /** The queue may have become empty. */
  releaseIfUnused(): void;
}

/** A connection is not reused in the last moments before its server closes it. */
const KEEP_ALIVE_MARGIN_MS = 1_000;

interface IdleConnection {
  readonly connection: Connection;
  readonly until: number;
}

export class AdmissionQueue implements ConnectionOwner {
  readonly #port: number;
  readonly #gate: QueueGate;
  readonly #waiting: Exchange[] = [];
  /** How many requests at the head of the queue were there when the gate closed. */
  #queuedBeforeClose = 0;
  readonly #runOf = new Map<Connection, SandboxRun>();
  /** The connection that was used last is reused first, so that the others can time out. */
  readonly #idle: IdleConnection[] = [];
  /** New connections without a response byte yet. The app may not have accepted them. */
  readonly #unconfirmed = new Set<Connection>();
  /** Connections that are being opened. */
  #connecting = 0;
  /** A dial that is under way; further attempts share its result. */
  #dialing: ReturnType<QueueGate['dial']> | undefined;
  #mode: PortMode = INITIAL_PORT_MODE;

  constructor(port: number, gate: QueueGate) {
    this.#port = port;
    this.#gate = gate;
  }

  get isEmpty(): boolean {
    return this.#waiting.length === 0 && this.#runOf.size === 0 && this.#connecting === 0;
  }

  /** Whether a request is about to be dispatched. A pause does not wait for requests at a closed port. */
  get isMoving(): boolean {
    return this.#admissible > 0 && this.#gate.run !== undefined && !this.#isBlocked;
  }

  /** No connection is opened while the queue backs off or refuses. */
  get #isBlocked(): boolean {
    return this.#mode.name === 'backing_off' || this.#mode.name === 'refusing';
  }

  /** How many requests at the head of the queue may be dispatched. */
  get #admissible(): number {
    const { admits } = this.#gate;
    if (admits === 'all') return this.#waiting.length;
    return admits === 'queued_before_close' ? this.#queuedBeforeClose : 0;
  }

  gateClosed(): void {
    this.#queuedBeforeClose = this.#waiting.length;
  }

  /** An idle connection, when no request waits before the caller's. */
  takeIdleIfFirst(): Connection | undefined {
    const { admits, run } = this.#gate;
    const isFirst = this.#waiting.length === 0 && admits === 'all' && run !== undefined;
    return isFirst ? this.#takeIdle() : undefined;
  }

  #takeIdle(): Connection | undefined {
    const now = this.#gate.clock.monotonic();
    for (let idle = this.#idle.pop(); idle !== undefined; idle = this.#idle.pop()) {
      const { connection, until } = idle;
      if (connection.isUsable && now < until && this.#runOf.get(connection) === this.#gate.run) {
        connection.socket.setTimeout(0);
        return connection;
      }
      connection.socket.destroy();
    }
    return undefined;
  }

  enqueue(exchange: Exchange): void {
    this.#waiting.push(exchange);
    this.advance();
  }

  /** Puts a request back at the head, after its reused connection was dead. The other idle ones are suspect too. */
  enqueueFirst(exchange: Exchange): void {
    this.dropIdle();
    this.#waiting.unshift(exchange);
    this.#queuedBeforeClose++;
    this.advance();
  }

  /** False when the exchange is not in the queue. */
  withdraw(exchange: Exchange): boolean {
    const at = this.#waiting.indexOf(exchange);
    if (at < 0) return false;
    this.#waiting.splice(at, 1);
    if (at < this.#queuedBeforeClose) this.#queuedBeforeClose--;
    this.#gate.exchangeLeftQueue(exchange);
    return true;
  }

  refuseAll(error: TorporError): void {
    for (const exchange of [...this.#waiting]) this.#refuse(exchange, error);
  }

  /** Dispatches as many requests as possible now, and opens the connections for the others. */
  advance(): void {
    if (this.#admissible === 0 || this.#isBlocked) return;
    const { run, settings } = this.#gate;
    if (run === undefined) {
      for (const exchange of this.#waiting.filter(({ countsAsUse }) => !countsAsUse))
        this.#refuse(exchange, notRunning());
      if (this.#waiting.length > 0) this.#gate.wake();
      return;
    }
    while (this.#admissible > 0 && this.#mayReuse) {
      const idle = this.#takeIdle();
      if (idle === undefined) break;
      this.#dispatchNext(idle);
    }
    // Until the port has answered in this run, one attempt is enough to find out.
    const atOnce = modeInRun(this.#mode, run).name === 'answering' ? settings.connectingAtOnce : 1;
    while (this.#connecting < Math.min(this.#admissible, atOnce)) this.#open(run);
  }

  /** Hands the connection to the next request, or keeps it for later ones. */
  becameIdle(connection: Connection, promisedMs: number | undefined): void {
    const { run, settings, clock } = this.#gate;
    if (run === undefined || this.#runOf.get(connection) !== run) return void connection.socket.destroy();
    if (this.#admissible > 0 && (connection.requests === 0 || this.#mayReuse)) {
      this.#dispatchNext(connection);
      return;
    }
    const promised = promisedMs === undefined ? settings.idleConnectionMs : promisedMs - KEEP_ALIVE_MARGIN_MS;
    const ms = Math.min(promised, settings.idleConnectionMaxMs);
    if (ms <= 0) return void connection.socket.destroy();
    connection.socket.setTimeout(ms);
    this.#idle.push({ connection, until: clock.monotonic() + ms });
  }

  firstByteReceived(connection: Connection): void {
    if (this.#unconfirmed.delete(connection)) this.advance();
  }

  connectionClosed(connection: Connection): void {
    this.firstByteReceived(connection);
    this.#runOf.delete(connection);
    const at = this.#idle.findIndex((idle) => idle.connection === connection);
    if (at >= 0) this.#idle.splice(at, 1);
    this.#gate.releaseIfUnused();
  }

  dropIdle(): void {
    for (const { connection } of this.#idle.splice(0)) connection.reset();
  }

  /**
   * A request on a connection that the app has accepted overtakes an earlier request on a connection that the app has
   * not accepted yet. To keep their order, waiting requests get new connections until all others are confirmed.
   */
  get #mayReuse(): boolean {
    return this.#unconfirmed.size === 0;
  }

  #dispatchNext(connection: Connection): void {
    const next = this.#waiting.shift();
    if (next === undefined) return;
    if (this.#queuedBeforeClose > 0) this.#queuedBeforeClose--;
    if (connection.requests === 0) this.#unconfirmed.add(connection);
    this.#gate.exchangeLeftQueue(next);
    next.dispatch(connection);
  }

  #open(run: SandboxRun): void {
    this.#connecting++;
    this.#connect(run).then(
      (connection) => {
        this.#connecting--;
        if (this.#gate.run === run) this.#setMode('connected', { run });
        this.becameIdle(connection, undefined);
        this.advance();
      },
      (thrown: unknown) => {
        this.#connecting--;
        this.#connectFailed(run, thrown);
      },
    );
  }

  async #connect(run: SandboxRun): Promise<Connection> {
    const { clock, settings } = this.#gate;
    const found = await this.#dial(run);
    if (found === null) throw new PortClosed('nothing listens');
    const [address, token] = 'token' in found ? [found.address, found.token] : [found, undefined];
    const socket = await connect(address, clock, settings.connectMs);
    const connection = new Connection(socket, token, settings.maxHeadBytes, this);
    this.#runOf.set(connection, run);
    return connection;
  }

  #dial(run: SandboxRun): ReturnType<QueueGate['dial']> {
    this.#dialing ??= this.#gate.dial(run, this.#port).finally(() => {
      this.#dialing = undefined;
    });
    return this.#dialing;
  }

  #connectFailed(run: SandboxRun, thrown: unknown): void {
    if (this.#gate.run !== run || this.#waiting.length === 0) return void this.advance();
    if (!(thrown instanceof PortClosed)) {
      // The sandbox may have changed since the gate saw it. The next attempt looks at it again.
      this.#gate.endRun(run);
      return void this.#backOff(run, undefined);
    }
    const now = this.#gate.clock.monotonic();
    const grace = modeInRun(this.#mode, run).grace ?? {
      ...this.#gate.portGraceOf(run, this.#port),
      since: now,
    };
    if (now - grace.since < grace.ms) this.#backOff(run, grace);
    else this.#refuseWaiting(run, grace);
  }

  #backOff(run: SandboxRun, grace: RunningPortGrace | undefined): void {
    if (!this.#setMode('connect_failed', { run, grace })) return;
    const mode = this.#mode;
    this.#gate.clock.sleep(mode.delayMs).then(() => {
      if (this.#mode === mode) this.#setMode('delay_over');
      this.advance();
    });
  }

  /** Refuses the requests that wait now. A request that joins meanwhile gets an attempt of its own. */
  #refuseWaiting(run: SandboxRun, grace: PortGrace): void {
    if (!this.#setMode('grace_over', { run })) return;
    const mode = this.#mode;
    const refused = [...this.#waiting];
    this.#gate.explainClosedPort(run, this.#port, grace).then((error) => {
      if (this.#mode === mode) this.#setMode('refused');
      for (const exchange of refused) this.#refuse(exchange, error);
      this.advance();
    });
  }

  #refuse(exchange: Exchange, error: TorporError): void {
    if (this.withdraw(exchange)) exchange.refuse(error);
  }

  /** The only place that changes the mode; `port-mode.ts` has the table. False when the event changes nothing. */
  #setMode(event: PortEvent, about?: Parameters<typeof portModeAfter>[2]): boolean {
    const before = this.#mode;
    this.#mode = portModeAfter(before, event, about);
    return this.#mode !== before;
  }
}

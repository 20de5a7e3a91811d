/**
 * The admission queue of one sandbox port. A request that finds an open gate, an empty queue and an idle connection
 * is dispatched at once. Every other request waits here, and connections are handed out in order of arrival. A
 * request that is held by a closed gate and a request that waits for a connection wait in the same queue.
 */
import type { Address, AgentAddress, Clock } from '@torpor/engine';
import type { TorporError } from '@torpor/protocol';
import type { GatewaySettings } from '../settings.ts';
import { connect, PortClosed } from '../upstream/connect.ts';
import { Connection, type ConnectionOwner } from '../upstream/connection.ts';
import type { Exchange } from './exchange.ts';
import type { GateEpoch } from './gate-mode.ts';
import {
  known,
  type PortEvent,
  type PortGrace,
  type PortMode,
  portModeAfter,
  type RunningPortGrace,
  UNTRIED,
} from './port-mode.ts';
import { notRunning } from './refusals.ts';

/** Which queued requests may be dispatched. */
export type Admits = 'all' | 'queued_before_close' | 'none';

/** What an admission queue asks of its gate. */
export interface QueueGate {
  readonly clock: Clock;
  readonly settings: GatewaySettings;
  /** The present run of the sandbox; undefined when the gate does not know of one. */
  readonly epoch: GateEpoch | undefined;
  readonly admits: Admits;
  /** Finds out whether the sandbox runs, wakes it if not, and advances all queues. */
  wake(): void;
  /** The sandbox is not the run that the gate knew: the next request looks at it again. */
  endEpoch(epoch: GateEpoch): void;
  dial(epoch: GateEpoch, port: number): Promise<Address | AgentAddress | null>;
  portGraceOf(epoch: GateEpoch, port: number): PortGrace;
  explainClosedPort(epoch: GateEpoch, port: number, grace: PortGrace): Promise<TorporError>;
  /** The exchange was dispatched, refused or given up by its client. */
  leftQueue(exchange: Exchange): void;
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
  readonly #epochOf = new Map<Connection, GateEpoch>();
  /** The connection that was used last is reused first, so that the others can time out. */
  readonly #idle: IdleConnection[] = [];
  /** New connections without a response byte yet. The app may not have accepted them. */
  readonly #unconfirmed = new Set<Connection>();
  /** Connections that are being opened. */
  #connecting = 0;
  /** A dial that is under way; further attempts share its result. */
  #dialing: ReturnType<QueueGate['dial']> | undefined;
  #mode: PortMode = UNTRIED;

  constructor(port: number, gate: QueueGate) {
    this.#port = port;
    this.#gate = gate;
  }

  get isEmpty(): boolean {
    return this.#waiting.length === 0 && this.#epochOf.size === 0 && this.#connecting === 0;
  }

  /** Whether a request is about to be dispatched. A pause does not wait for requests at a closed port. */
  get isMoving(): boolean {
    return this.#admissible > 0 && this.#gate.epoch !== undefined && !this.#isBlocked;
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
    const { admits, epoch } = this.#gate;
    const isFirst = this.#waiting.length === 0 && admits === 'all' && epoch !== undefined;
    return isFirst ? this.#takeIdle() : undefined;
  }

  #takeIdle(): Connection | undefined {
    const now = this.#gate.clock.monotonic();
    for (let idle = this.#idle.pop(); idle !== undefined; idle = this.#idle.pop()) {
      const { connection, until } = idle;
      if (connection.isUsable && now < until && this.#epochOf.get(connection) === this.#gate.epoch) {
        connection.socket.setTimeout(0);
        return connection;
      }
      connection.socket.destroy();
    }
    return undefined;
  }

  join(exchange: Exchange): void {
    this.#waiting.push(exchange);
    this.advance();
  }

  /** Puts a request back at the head, after its reused connection was dead. The other idle ones are suspect too. */
  joinFirst(exchange: Exchange): void {
    this.dropIdle();
    this.#waiting.unshift(exchange);
    this.#queuedBeforeClose++;
    this.advance();
  }

  /** False when the exchange is not in the queue. */
  leave(exchange: Exchange): boolean {
    const at = this.#waiting.indexOf(exchange);
    if (at < 0) return false;
    this.#waiting.splice(at, 1);
    if (at < this.#queuedBeforeClose) this.#queuedBeforeClose--;
    this.#gate.leftQueue(exchange);
    return true;
  }

  refuseAll(error: TorporError): void {
    for (const exchange of [...this.#waiting]) this.#refuse(exchange, error);
  }

  /** Dispatches as many requests as possible now, and opens the connections for the others. */
  advance(): void {
    if (this.#admissible === 0 || this.#isBlocked) return;
    const { epoch, settings } = this.#gate;
    if (epoch === undefined) {
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
    // Until the port has answered in this epoch, one attempt is enough to find out.
    const atOnce = known(this.#mode, epoch).name === 'answering' ? settings.connectingAtOnce : 1;
    while (this.#connecting < Math.min(this.#admissible, atOnce)) this.#open(epoch);
  }

  /** Hands the connection to the next request, or keeps it for later ones. */
  becameIdle(connection: Connection, promisedMs: number | undefined): void {
    const { epoch, settings, clock } = this.#gate;
    if (epoch === undefined || this.#epochOf.get(connection) !== epoch)
      return void connection.socket.destroy();
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
    this.#epochOf.delete(connection);
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
    this.#gate.leftQueue(next);
    next.begin(connection);
  }

  #open(epoch: GateEpoch): void {
    this.#connecting++;
    this.#connect(epoch).then(
      (connection) => {
        this.#connecting--;
        if (this.#gate.epoch === epoch) this.#setMode('connected', { epoch });
        this.becameIdle(connection, undefined);
        this.advance();
      },
      (thrown: unknown) => {
        this.#connecting--;
        this.#connectFailed(epoch, thrown);
      },
    );
  }

  async #connect(epoch: GateEpoch): Promise<Connection> {
    const { clock, settings } = this.#gate;
    const found = await this.#dial(epoch);
    if (found === null) throw new PortClosed('nothing listens');
    const [address, token] = 'token' in found ? [found.address, found.token] : [found, undefined];
    const socket = await connect(address, clock, settings.connectMs);
    const connection = new Connection(socket, token, settings.maxHeadBytes, this);
    this.#epochOf.set(connection, epoch);
    return connection;
  }

  #dial(epoch: GateEpoch): ReturnType<QueueGate['dial']> {
    this.#dialing ??= this.#gate.dial(epoch, this.#port).finally(() => {
      this.#dialing = undefined;
    });
    return this.#dialing;
  }

  #connectFailed(epoch: GateEpoch, thrown: unknown): void {
    if (this.#gate.epoch !== epoch || this.#waiting.length === 0) return void this.advance();
    if (!(thrown instanceof PortClosed)) {
      // The sandbox may have changed since the gate saw it. The next attempt looks at it again.
      this.#gate.endEpoch(epoch);
      return void this.#backOff(epoch, undefined);
    }
    const now = this.#gate.clock.monotonic();
    const grace = known(this.#mode, epoch).grace ?? {
      ...this.#gate.portGraceOf(epoch, this.#port),
      since: now,
    };
    if (now - grace.since < grace.ms) this.#backOff(epoch, grace);
    else this.#refuseWaiting(epoch, grace);
  }

  #backOff(epoch: GateEpoch, grace: RunningPortGrace | undefined): void {
    if (!this.#setMode('connect_failed', { epoch, grace })) return;
    const mode = this.#mode;
    this.#gate.clock.sleep(mode.delayMs).then(() => {
      if (this.#mode === mode) this.#setMode('delay_over');
      this.advance();
    });
  }

  /** Refuses the requests that wait now. A request that joins meanwhile gets an attempt of its own. */
  #refuseWaiting(epoch: GateEpoch, grace: PortGrace): void {
    if (!this.#setMode('grace_over', { epoch })) return;
    const mode = this.#mode;
    const refused = [...this.#waiting];
    this.#gate.explainClosedPort(epoch, this.#port, grace).then((error) => {
      if (this.#mode === mode) this.#setMode('refused');
      for (const exchange of refused) this.#refuse(exchange, error);
      this.advance();
    });
  }

  #refuse(exchange: Exchange, error: TorporError): void {
    if (this.leave(exchange)) exchange.refuse(error);
  }

  /** The only place that changes the mode; `port-mode.ts` has the table. False when the event changes nothing. */
  #setMode(event: PortEvent, about?: Parameters<typeof portModeAfter>[2]): boolean {
    const before = this.#mode;
    this.#mode = portModeAfter(before, event, about);
    return this.#mode !== before;
  }
}

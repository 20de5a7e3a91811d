/** The connections to one other node. They are kept between requests; a request that finds none free opens one. */
import { connect as openSocket, type Socket } from 'node:net';
import { connect as openTls } from 'node:tls';
import type { Clock } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import type { ActiveExchange, Exchange, ExchangeGate } from '../gate/exchange.ts';
import { serverStopping } from '../gate/refusals.ts';
import type { GatewaySettings } from '../settings.ts';
import { Connection, type ConnectionOwner } from '../upstream/connection.ts';

export interface NodeConnectionsParts {
  readonly node: string;
  /** An http or https origin. */
  readonly address: URL;
  readonly clock: Clock;
  readonly settings: GatewaySettings;
  readonly stopping: AbortSignal;
}

/** Idle connections that are kept to one node. */
const MAX_IDLE = 256;

export class NodeConnections implements ExchangeGate, ConnectionOwner {
  readonly settings: GatewaySettings;
  readonly #parts: NodeConnectionsParts;
  readonly #idle: Connection[] = [];
  readonly #waiting: Exchange[] = [];
  readonly #active = new Set<ActiveExchange>();
  #opening = 0;

  constructor(parts: NodeConnectionsParts) {
    this.#parts = parts;
    this.settings = parts.settings;
  }

  get isClosed(): boolean {
    return this.isStopping;
  }

  get isStopping(): boolean {
    return this.#parts.stopping.aborted;
  }

  get isUnused(): boolean {
    return this.#idle.length + this.#waiting.length + this.#active.size + this.#opening === 0;
  }

  submit(_: number, exchange: Exchange): void {
    if (this.isStopping) return void exchange.refuse(serverStopping());
    const idle = this.#takeIdle();
    if (idle !== undefined) return void exchange.dispatch(idle);
    this.#waiting.push(exchange);
    if (this.#opening < this.#waiting.length) void this.#open();
  }

  resubmit(port: number, exchange: Exchange): void {
    // A connection that was kept was dead. The others may be dead too.
    for (const connection of this.#idle.splice(0)) connection.socket.destroy();
    this.submit(port, exchange);
  }

  withdraw(_: number, exchange: Exchange): boolean {
    const at = this.#waiting.indexOf(exchange);
    if (at >= 0) this.#waiting.splice(at, 1);
    return at >= 0;
  }

  exchangeStarted(exchange: ActiveExchange): void {
    this.#active.add(exchange);
    if (this.isStopping) exchange.askToEnd();
  }

  exchangeEnded(exchange: ActiveExchange): void {
    this.#active.delete(exchange);
    this.exchangeChanged();
  }

  /** Makes a stop look again at what it waits for. */
  exchangeChanged: () => void = () => {};

  bytesMoved(): void {}

  awaitingResponse(): void {}

  cutError(): TorporError {
    return this.brokenError(0, undefined);
  }

  brokenError(_: number, cause: unknown): TorporError {
    const { node } = this.#parts;
    return new TorporError(
      'unreachable',
      `The connection to the node "${node}" broke before it had answered.`,
      {
        retryable: false,
        retryAfterMs: 1_000,
        hint: 'The request may have reached the sandbox. Check before you send it again.',
        details: { dispatched: 'unknown', node },
        cause,
      },
    );
  }

  firstByteReceived(): void {}

  becameIdle(connection: Connection, promisedMs: number | undefined): void {
    const waiting = this.#waiting.shift();
    if (waiting !== undefined) return void waiting.dispatch(connection);
    const { idleConnectionMaxMs } = this.settings;
    if (this.isStopping || this.#idle.length >= MAX_IDLE) return void connection.socket.destroy();
    // The other node must not close a connection just when a request is sent on it.
    const keptMs = Math.min(idleConnectionMaxMs, (promisedMs ?? idleConnectionMaxMs) - 1_000);
    if (keptMs <= 0) return void connection.socket.destroy();
    connection.socket.setTimeout(keptMs);
    this.#idle.push(connection);
  }

  connectionClosed(connection: Connection): void {
    const at = this.#idle.indexOf(connection);
    if (at >= 0) this.#idle.splice(at, 1);
  }

  /** Waits for the exchanges until the signal fires, and ends those that are left. */
  async stop(signal: AbortSignal): Promise<void> {
    for (const exchange of this.#waiting.splice(0)) exchange.refuse(serverStopping());
    for (const connection of this.#idle.splice(0)) connection.socket.destroy();
    for (const exchange of this.#active) exchange.askToEnd();
    while (!signal.aborted && this.#hasMoving()) {
      const changed = Promise.withResolvers<void>();
      this.exchangeChanged = changed.resolve;
      const { clock } = this.#parts;
      await Promise.race([
        changed.promise,
        clock.sleep(this.settings.drainQuietMs / 4, signal).catch(() => {}),
      ]);
    }
    for (const exchange of [...this.#active]) exchange.abort();
  }

  #hasMoving(): boolean {
    const now = this.#parts.clock.monotonic();
    return [...this.#active].some((exchange) => !exchange.isQuiet(now));
  }

  #takeIdle(): Connection | undefined {
    // The one that was used last is the least likely to be dead.
    for (let taken = this.#idle.pop(); taken !== undefined; taken = this.#idle.pop()) {
      if (!taken.isUsable) continue;
      taken.socket.setTimeout(0);
      return taken;
    }
    return undefined;
  }

  async #open(): Promise<void> {
    this.#opening++;
    try {
      const socket = await this.#connect();
      const connection = new Connection(socket, undefined, this.settings.maxHeadBytes, this);
      this.becameIdle(connection, undefined);
    } catch (cause) {
      const error = this.#unreachable(cause);
      // Nothing was sent. Every request that waits would fail in the same way.
      for (const exchange of this.#waiting.splice(0)) exchange.refuse(error);
    } finally {
      this.#opening--;
    }
  }

  async #connect(): Promise<Socket> {
    const { address, clock } = this.#parts;
    const { connectMs } = this.settings;
    const secure = address.protocol === 'https:';
    const host = address.hostname.replace(/^\[|\]$/g, '');
    const port = Number(address.port || (secure ? 443 : 80));
    const common = { host, port, noDelay: true, allowHalfOpen: true };
    const socket = secure ? openTls({ ...common, ALPNProtocols: ['http/1.1'] }) : openSocket(common);
    const timer = new AbortController();
    try {
      await new Promise<void>((resolve, reject) => {
        socket.once(secure ? 'secureConnect' : 'connect', resolve);
        socket.once('error', reject);
        clock.sleep(connectMs, timer.signal).then(
          () => reject(new Error(`No connection within ${connectMs} ms.`)),
          () => {},
        );
      });
      socket.removeAllListeners('error');
      return socket;
    } catch (thrown) {
      socket.on('error', () => {});
      socket.destroy();
      throw thrown;
    } finally {
      timer.abort();
    }
  }

  #unreachable(cause: unknown): TorporError {
    const { node } = this.#parts;
    return new TorporError(
      'unreachable',
      `The node "${node}", on which the sandbox lives, cannot be reached.`,
      {
        retryAfterMs: 1_000,
        hint: 'Try again. If it stays so: `torpor node ls` shows the nodes, and the log says why.',
        details: { dispatched: false, node },
        cause,
      },
    );
  }
}

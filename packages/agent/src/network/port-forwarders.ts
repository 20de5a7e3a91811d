/**
 * Makes ports that listen only on the loopback, as most dev servers do, reachable from outside: one relay with a port
 * of its own for each. A relay never listens on the number of the port it forwards to, because the program may want
 * that port on every address the next time it starts.
 */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import type { ListeningSocket } from './listening-ports.ts';

/** A loopback connection is established at once or not at all. */
const CONNECT_MS = 400;
const MAX_TRIES = 10;
/** Local ports of the relays' connections: Linux's usual ephemeral range. */
const LOCAL_PORTS = { first: 32_768, last: 60_999 } as const;

export interface PortForwardersOptions {
  /** All listening sockets of the sandbox, including the relays. */
  readonly listening: () => Promise<readonly ListeningSocket[]>;
  /** The agent's own port, which is never forwarded. */
  readonly agentPort: () => number | undefined;
}

interface Relay {
  readonly server: Server;
  readonly port: number;
}

export class PortForwarders {
  readonly #relays = new Map<number, Promise<Relay>>();
  readonly #relayPorts = new Set<number>();
  #lastPort: number = LOCAL_PORTS.last;
  readonly #options: PortForwardersOptions;

  constructor(options: PortForwardersOptions) {
    this.#options = options;
  }

  /** The port to dial on the sandbox's own address; undefined when no program listens. */
  async dialPort(port: number): Promise<number | undefined> {
    const sockets = (await this.#options.listening()).filter((socket) => !this.isAgentSocket(socket));
    this.#dropStale(sockets);
    const found = sockets.filter((socket) => socket.port === port);
    if (found.length === 0) return undefined;
    const loopback = loopbackAddress(found);
    if (loopback === undefined) return port;
    const relay = this.#relays.get(port) ?? this.#open(port, loopback);
    return (await relay).port;
  }

  isAgentSocket({ port }: ListeningSocket): boolean {
    return this.#relayPorts.has(port) || port === this.#options.agentPort();
  }

  close(): void {
    for (const port of [...this.#relays.keys()]) this.#drop(port);
  }

  /** Drops relays whose listener is gone or can now be reached directly. */
  #dropStale(sockets: readonly ListeningSocket[]): void {
    for (const port of [...this.#relays.keys()]) {
      if (loopbackAddress(sockets.filter((socket) => socket.port === port)) === undefined) this.#drop(port);
    }
  }

  #open(port: number, host: string): Promise<Relay> {
    const opening = this.#listen(port, host);
    this.#relays.set(port, opening);
    opening.catch(() => this.#relays.delete(port));
    return opening;
  }

  async #listen(target: number, host: string): Promise<Relay> {
    const options = { allowHalfOpen: true, noDelay: true };
    const server = createServer({ ...options, pauseOnConnect: true }, (client) => {
      client.on('error', () => client.destroy());
      const gone = () => {
        // The connection failed: the listener is gone since the relay was opened.
        this.#drop(target);
        client.resetAndDestroy();
      };
      const dial = () => connect({ ...options, host, port: target, localPort: this.#nextPort() });
      reach(dial, MAX_TRIES).then((program) => pipeBothWays(client, program), gone);
    });
    // Listens on every address, because the sandbox's own may change while it is paused.
    server.listen({ host: '0.0.0.0', port: 0 });
    await once(server, 'listening');
    server.on('error', () => {});
    const { port } = server.address() as { port: number };
    this.#relayPorts.add(port);
    return { server, port };
  }

  /**
   * Takes local ports one after the other, so that no port is used again soon. After a pause, gVisor still knows
   * connections that ended long ago, and confuses a new connection from the same port with an old one: the new one is
   * never answered, or is ended by packets of the old one.
   */
  #nextPort(): number {
    this.#lastPort = this.#lastPort >= LOCAL_PORTS.last ? LOCAL_PORTS.first : this.#lastPort + 1;
    return this.#lastPort;
  }

  /** Stops listening; open connections go on. */
  #drop(target: number): void {
    const relay = this.#relays.get(target);
    this.#relays.delete(target);
    void relay
      ?.then(({ server, port }) => {
        server.close();
        this.#relayPorts.delete(port);
      })
      .catch(() => {});
  }
}

/** The address to forward to when all listeners are on the loopback; undefined when one can be reached from outside. */
function loopbackAddress(sockets: readonly ListeningSocket[]): string | undefined {
  const isLoopback = ({ address }: ListeningSocket) => address === '::1' || address.startsWith('127.');
  return sockets.every(isLoopback) ? sockets[0]?.address : undefined;
}

/** Opens the connection. Tries another local port when the port is in use or the connection is not answered. */
function reach(dial: () => Socket, triesLeft: number): Promise<Socket> {
  const socket = dial();
  return new Promise((resolve, reject) => {
    const again = (why: Error) => {
      if (triesLeft > 1) reach(dial, triesLeft - 1).then(resolve, reject);
      else reject(why);
    };
    const failed = (error: NodeJS.ErrnoException) =>
      error.code === 'EADDRINUSE' ? again(error) : reject(error);
    socket.once('error', failed);
    socket.once('connect', () => {
      socket.off('error', failed);
      socket.setTimeout(0).removeAllListeners('timeout');
      resolve(socket);
    });
    socket.setTimeout(CONNECT_MS, () => {
      socket.destroy();
      again(new Error('The program does not accept the connection.'));
    });
  });
}

function pipeBothWays(client: Socket, program: Socket): void {
  program.on('error', () => client.resetAndDestroy());
  client.on('close', () => program.destroy());
  program.on('close', () => client.destroySoon());
  // The client may have closed before the listeners were attached.
  if (client.destroyed) program.destroy();
  else client.pipe(program).pipe(client);
}

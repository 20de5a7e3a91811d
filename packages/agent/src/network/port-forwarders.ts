/**
 * Ways from outside to ports that are open on the loopback only, as most dev servers are: a relay on a port
 * of its own for each. It never takes the number of the port it leads to, which the program may want on
 * every address the next time it starts.
 */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import type { ListeningSocket } from './listening-ports.ts';

/** On the loopback a connection is there at once, or not at all. */
const CONNECT_MS = 400;
const MAX_TRIES = 10;
/** Where our own ends of connections are; a program that wants one of these has to look for another, as usual. */
const OWN_PORTS = { first: 32_768, last: 60_999 } as const;

export interface PortForwardersOptions {
  /** Everything that listens in the sandbox, our own relays included. */
  readonly listening: () => Promise<readonly ListeningSocket[]>;
  /** The agent's own, to which nobody is led. */
  readonly agentPort: () => number | undefined;
}

interface Relay {
  readonly server: Server;
  readonly port: number;
}

export class PortForwarders {
  readonly #relays = new Map<number, Promise<Relay>>();
  readonly #ownPorts = new Set<number>();
  #lastPort: number = OWN_PORTS.last;
  readonly #options: PortForwardersOptions;

  constructor(options: PortForwardersOptions) {
    this.#options = options;
  }

  /** What to dial on the sandbox's own address; undefined when nobody listens. */
  async reach(port: number): Promise<number | undefined> {
    const sockets = (await this.#options.listening()).filter((socket) => !this.isOwn(socket));
    this.#prune(sockets);
    const found = sockets.filter((socket) => socket.port === port);
    if (found.length === 0) return undefined;
    const loopback = loopbackOf(found);
    if (loopback === undefined) return port;
    const relay = this.#relays.get(port) ?? this.#open(port, loopback);
    return (await relay).port;
  }

  isOwn({ port }: ListeningSocket): boolean {
    return this.#ownPorts.has(port) || port === this.#options.agentPort();
  }

  close(): void {
    for (const port of [...this.#relays.keys()]) this.#drop(port);
  }

  /** A relay goes when its listener does, or when that can now be reached without it. */
  #prune(sockets: readonly ListeningSocket[]): void {
    for (const port of [...this.#relays.keys()]) {
      if (loopbackOf(sockets.filter((socket) => socket.port === port)) === undefined) this.#drop(port);
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
        // Nobody took the connection: the listener went away since the relay was asked for.
        this.#drop(target);
        client.resetAndDestroy();
      };
      const dial = () => connect({ ...options, host, port: target, localPort: this.#nextPort() });
      reach(dial, MAX_TRIES).then((program) => join(client, program), gone);
    });
    // Every address: the sandbox's own may be another after it has slept.
    server.listen({ host: '0.0.0.0', port: 0 });
    await once(server, 'listening');
    server.on('error', () => {});
    const { port } = server.address() as { port: number };
    this.#ownPorts.add(port);
    return { server, port };
  }

  /**
   * One after the other, so that none is used again soon. When a sandbox has slept, gVisor still knows the ends of
   * connections that are long over, and takes a new one from the same port for one of those: it is never answered,
   * or ended by what belonged to the other.
   */
  #nextPort(): number {
    this.#lastPort = this.#lastPort >= OWN_PORTS.last ? OWN_PORTS.first : this.#lastPort + 1;
    return this.#lastPort;
  }

  /** Connections that are open go on. */
  #drop(target: number): void {
    const relay = this.#relays.get(target);
    this.#relays.delete(target);
    void relay
      ?.then(({ server, port }) => {
        server.close();
        this.#ownPorts.delete(port);
      })
      .catch(() => {});
  }
}

/** The address to lead to when no other than loopback ones is listened on. */
function loopbackOf(sockets: readonly ListeningSocket[]): string | undefined {
  const isLoopback = ({ address }: ListeningSocket) => address === '::1' || address.startsWith('127.');
  return sockets.every(isLoopback) ? sockets[0]?.address : undefined;
}

/** Opens the connection, from another port when somebody has that one or nobody answers. */
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
      again(new Error('Nobody takes the connection.'));
    });
  });
}

function join(client: Socket, program: Socket): void {
  program.on('error', () => client.resetAndDestroy());
  client.on('close', () => program.destroy());
  program.on('close', () => client.destroySoon());
  // It may have left while nobody listened to it.
  if (client.destroyed) program.destroy();
  else client.pipe(program).pipe(client);
}

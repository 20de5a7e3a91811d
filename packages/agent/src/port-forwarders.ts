/**
 * Ways from outside to ports that are open on the loopback only, as most dev servers are: a relay on a port
 * of its own for each. It never takes the number of the port it leads to, which the program may want on
 * every address the next time it starts.
 */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import type { ListeningSocket } from './ports.ts';

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
  private readonly relays = new Map<number, Promise<Relay>>();
  private readonly ownPorts = new Set<number>();
  private readonly options: PortForwardersOptions;

  constructor(options: PortForwardersOptions) {
    this.options = options;
  }

  /** What to dial on the sandbox's own address; undefined when nobody listens. */
  async reach(port: number): Promise<number | undefined> {
    const sockets = (await this.options.listening()).filter((socket) => !this.isOwn(socket));
    this.prune(sockets);
    const found = sockets.filter((socket) => socket.port === port);
    if (found.length === 0) return undefined;
    const loopback = loopbackOf(found);
    if (loopback === undefined) return port;
    const relay = this.relays.get(port) ?? this.open(port, loopback);
    return (await relay).port;
  }

  isOwn({ port }: ListeningSocket): boolean {
    return this.ownPorts.has(port) || port === this.options.agentPort();
  }

  close(): void {
    for (const port of [...this.relays.keys()]) this.drop(port);
  }

  /** A relay goes when its listener does, or when that can now be reached without it. */
  private prune(sockets: readonly ListeningSocket[]): void {
    for (const port of [...this.relays.keys()]) {
      if (loopbackOf(sockets.filter((socket) => socket.port === port)) === undefined) this.drop(port);
    }
  }

  private open(port: number, host: string): Promise<Relay> {
    const opening = this.listen(port, host);
    this.relays.set(port, opening);
    opening.catch(() => this.relays.delete(port));
    return opening;
  }

  private async listen(target: number, host: string): Promise<Relay> {
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) =>
      join(client, connect({ host, port: target, allowHalfOpen: true, noDelay: true }), () =>
        this.drop(target),
      ),
    );
    // Every address: the sandbox's own may be another after it has slept.
    server.listen({ host: '0.0.0.0', port: 0 });
    await once(server, 'listening');
    server.on('error', () => {});
    const { port } = server.address() as { port: number };
    this.ownPorts.add(port);
    return { server, port };
  }

  /** Connections that are open go on. */
  private drop(target: number): void {
    const relay = this.relays.get(target);
    this.relays.delete(target);
    void relay
      ?.then(({ server, port }) => {
        server.close();
        this.ownPorts.delete(port);
      })
      .catch(() => {});
  }
}

/** The address to lead to when no other than loopback ones is listened on. */
function loopbackOf(sockets: readonly ListeningSocket[]): string | undefined {
  const isLoopback = ({ address }: ListeningSocket) => address === '::1' || address.startsWith('127.');
  return sockets.every(isLoopback) ? sockets[0]?.address : undefined;
}

function join(client: Socket, program: Socket, gone: () => void): void {
  client.pipe(program).pipe(client);
  client.on('error', () => program.destroy());
  program.on('error', () => {
    // Nobody took the connection: the listener went away since the relay was asked for.
    if (program.bytesRead === 0 && program.remoteAddress === undefined) gone();
    client.resetAndDestroy();
  });
  client.on('close', () => program.destroy());
  program.on('close', () => client.destroySoon());
}

/** The server to which the firewall redirects every TCP connection of a sandbox. */
import { createServer, type Server, type Socket } from 'node:net';
import type { AttachedInstance } from './attached-instance.ts';
import { EgressConnection, type EgressContext } from './egress-connection.ts';
import { reset } from './joined-sockets.ts';

export interface EgressLimits {
  readonly connectionsPerSandbox: number;
  readonly connectionsInAll: number;
}

/** Queue of connections that are not accepted yet, of all sandboxes together. The kernel may allow fewer. */
const BACKLOG = 4_096;

export class Egress {
  readonly #ctx: EgressContext;
  readonly #limits: EgressLimits;
  readonly #find: (address: string) => AttachedInstance | undefined;
  readonly #server: Server;
  #count = 0;

  /** `listening` already listens in the router. */
  constructor(
    listening: Server,
    find: (address: string) => AttachedInstance | undefined,
    ctx: EgressContext,
    limits: EgressLimits,
  ) {
    this.#find = find;
    this.#ctx = ctx;
    this.#limits = limits;
    const options = { allowHalfOpen: true, noDelay: true, keepAlive: true };
    this.#server = createServer(options, (socket) => this.#accept(socket)).listen(listening, BACKLOG);
  }

  /** Accepts no more connections. `SandboxNetwork` cuts the open ones. */
  async close(): Promise<void> {
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #accept(socket: Socket): void {
    const instance = this.#find(socket.remoteAddress ?? '');
    if (instance === undefined || instance.isHeld) reset(socket);
    else if (this.#isFull(instance)) this.#refuse(instance, socket);
    else this.#serve(instance, socket);
  }

  #isFull({ connections }: AttachedInstance): boolean {
    const { connectionsPerSandbox, connectionsInAll } = this.#limits;
    return connections.size >= connectionsPerSandbox || this.#count >= connectionsInAll;
  }

  #refuse({ name: instance }: AttachedInstance, socket: Socket): void {
    const attempt = { via: 'tcp', destination: 'any', name: null, reason: 'too_many', rule: null } as const;
    this.#ctx.refusals.record(instance, attempt);
    reset(socket);
  }

  #serve(instance: AttachedInstance, socket: Socket): void {
    const connection = new EgressConnection(this.#ctx, instance, socket);
    instance.connections.add(connection);
    this.#count++;
    socket.once('close', () => this.#count--);
    connection.run().catch(() => connection.close());
  }
}

/**
 * A TCP link that can be cut: what a test puts between a node and its database, its store, or its peers.
 *
 * - `silent`: packets are lost. Nothing arrives in either direction and nothing is closed, as when a cable is unplugged. What was
 *   sent meanwhile arrives late, when the link is open again;
 * - `refused`: connections are reset, and new ones are refused.
 */
import {
  type AddressInfo,
  connect,
  createServer,
  type Server,
  type Socket,
  type TcpNetConnectOpts,
} from 'node:net';

export type LinkMode = 'open' | 'silent' | 'refused';
export type LinkTarget = TcpNetConnectOpts | { readonly path: string };

interface Connection {
  readonly near: Socket;
  /** Undefined until the link is open. */
  far: Socket | undefined;
}

export class Link {
  #mode: LinkMode = 'open';
  readonly #target: LinkTarget;
  readonly #connections = new Set<Connection>();
  readonly #server: Server;

  private constructor(target: LinkTarget) {
    this.#target = target;
    this.#server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (near) => this.#accept(near));
  }

  static async open(target: LinkTarget, port = 0): Promise<Link> {
    const link = new Link(target);
    await new Promise<void>((resolve, reject) => {
      link.#server.once('error', reject).listen(port, '127.0.0.1', resolve);
    });
    return link;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  set(mode: LinkMode): void {
    if (mode === this.#mode) return;
    this.#mode = mode;
    for (const connection of this.#connections) {
      if (mode === 'open') this.#join(connection);
      else if (mode === 'silent') part(connection);
      else this.#end(connection);
    }
  }

  async close(): Promise<void> {
    for (const connection of this.#connections) this.#end(connection);
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #accept(near: Socket): void {
    const connection: Connection = { near, far: undefined };
    this.#connections.add(connection);
    this.#endWith(connection, near);
    if (this.#mode === 'refused') this.#end(connection);
    else if (this.#mode === 'open') this.#join(connection);
  }

  #join(connection: Connection): void {
    if (connection.far === undefined) {
      connection.far = connect({ ...this.#target, allowHalfOpen: true });
      this.#endWith(connection, connection.far);
    }
    const { near, far } = connection;
    if (near.destroyed || far.destroyed) {
      this.#end(connection);
      return;
    }
    near.pipe(far);
    far.pipe(near);
  }

  /** While the link is silent, neither side learns that the other one has ended. */
  #endWith(connection: Connection, socket: Socket): void {
    socket.on('error', () => {});
    socket.on('close', () => {
      if (this.#mode !== 'silent') this.#end(connection);
    });
  }

  #end(connection: Connection): void {
    this.#connections.delete(connection);
    for (const socket of [connection.near, connection.far]) {
      if (socket !== undefined && !socket.destroyed) socket.resetAndDestroy();
    }
  }
}

function part({ near, far }: Connection): void {
  if (far === undefined) return;
  near.unpipe(far);
  far.unpipe(near);
}

/** Connections to one host for one opened connection of a sandbox: to checked addresses, over verified TLS. */
import { Agent } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect, getCACertificates, type TLSSocket } from 'node:tls';

export interface UpstreamOptions {
  readonly name: string;
  /** Dials a checked address of the name. Undefined when none answers or may be reached. */
  readonly dial: () => Promise<Socket | undefined>;
  /** Further authorities, as PEM, that may sign certificates of servers. */
  readonly authorities: readonly string[];
  readonly idleMs: number;
}

/** Why no request could be sent. */
export class UpstreamFailure extends Error {
  readonly is: 'unreachable' | 'untrusted';

  constructor(is: UpstreamFailure['is'], message: string, cause?: unknown) {
    super(message, { cause });
    this.is = is;
  }
}

/** One connection at a time. It is kept for the next request. */
export class UpstreamAgent extends Agent {
  readonly #options: UpstreamOptions;

  constructor(options: UpstreamOptions) {
    super({ keepAlive: true, maxSockets: 1, maxFreeSockets: 1, timeout: options.idleMs });
    this.#options = options;
  }

  override createConnection(
    _: unknown,
    callback?: (error: Error | null, stream: Duplex) => void,
  ): Duplex | null | undefined {
    this.#connect().then(
      (socket) => callback?.(null, socket),
      (thrown: unknown) => callback?.(thrown as Error, undefined as unknown as Duplex),
    );
    return undefined;
  }

  async #connect(): Promise<TLSSocket> {
    const { name, dial, authorities, idleMs } = this.#options;
    const socket = await dial();
    if (socket === undefined) throw new UpstreamFailure('unreachable', `${name} cannot be reached.`);
    const ca = authorities.length === 0 ? {} : { ca: [...getCACertificates('default'), ...authorities] };
    const secure = connect({
      socket,
      servername: name,
      ALPNProtocols: ['http/1.1'],
      minVersion: 'TLSv1.2',
      ...ca,
    });
    const { promise, resolve, reject } = Promise.withResolvers<TLSSocket>();
    secure.setTimeout(idleMs, () => secure.destroy());
    secure.once('secureConnect', () => resolve(secure));
    secure.once('close', () => reject(new UpstreamFailure('unreachable', `${name} closed the connection.`)));
    secure.on('error', (cause: NodeJS.ErrnoException) =>
      reject(
        new UpstreamFailure('untrusted', `The TLS connection to ${name} failed (${cause.code}).`, cause),
      ),
    );
    return promise;
  }
}

/** HTTPS and HTTP servers on addresses of the test internet, which sandboxes reach through the egress. */
import { randomBytes } from 'node:crypto';
import { createServer as createHttpServer, type IncomingMessage, type RequestListener } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { Server } from 'node:net';
import { commonName, createAuthority, issueCertificate } from '@torpor/certificates';
import { socketsInNamespace } from '../src/namespace-sockets.ts';
import { makeOutside } from './network-world.ts';

export interface OutsideServers {
  readonly network: string;
  /** The authority that signed the certificates of the servers, as PEM. */
  readonly authority: string;
  readonly requests: { readonly server: string; readonly request: IncomingMessage }[];
  address(index: number): string;
  /** Serves HTTPS for this name on port 443, or HTTP on port 80. */
  serve(name: string, index: number, kind: 'https' | 'http', listener: RequestListener): Promise<void>;
  close(): Promise<void>;
}

/** `made` is an existing test internet, which the caller removes. */
export async function outsideServers(
  made?: Awaited<ReturnType<typeof makeOutside>>,
): Promise<OutsideServers> {
  const outside = made ?? (await makeOutside(randomBytes(3).toString('hex')));
  const parts = { now: Date.now(), days: 30, randomBytes };
  const authority = createAuthority({ called: 'Outside', names: null }, parts);
  const signer = { ...authority, subject: commonName(authority.cert) };
  const listening: Server[] = [];
  const world: OutsideServers = {
    network: outside.network,
    authority: authority.cert,
    requests: [],
    address: outside.address,
    async serve(name, index, kind, listener) {
      const port = kind === 'https' ? 443 : 80;
      const wanted = [{ kind: 'tcp', host: outside.address(index), port }] as const;
      const { sockets, conntrack } = await socketsInNamespace(outside.netns, wanted);
      await conntrack?.close();
      const recorded: RequestListener = (request, response) => {
        world.requests.push({ server: `${kind} ${name}`, request });
        listener(request, response);
      };
      const server =
        kind === 'http'
          ? createHttpServer(recorded)
          : createHttpsServer(issueCertificate(signer, [name], parts), recorded);
      for (const socket of sockets) {
        if (!(socket instanceof Server)) continue;
        listening.push(socket);
        socket.on('connection', (connection) =>
          server.emit(
            'connection',
            connection.on('error', () => {}),
          ),
        );
      }
    },
    async close() {
      for (const server of listening) server.close();
      if (made === undefined) await outside.remove();
    },
  };
  return world;
}

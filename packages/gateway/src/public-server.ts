/** The one port of the server: what is for a sandbox goes through the gateway, everything else to the API. */
import { createServer, type IncomingMessage, type Server, type ServerOptions } from 'node:http';
import { createSecureServer, type Http2SecureServer, type ServerHttp2Session } from 'node:http2';
import type { Duplex } from 'node:stream';
import { isWebSocket } from './exchange/web-socket-upgrade.ts';
import type { Gateway } from './gateway.ts';
import type { ClientRequest, ClientResponse } from './response/client-http.ts';

export interface PublicServerOptions {
  readonly gateway: Gateway;
  readonly api: (request: ClientRequest, response: ClientResponse) => void;
  /** Present: HTTPS, with HTTP/2 for those who speak it. */
  readonly tls?: { readonly key: string; readonly cert: string } | undefined;
}

export type PublicServer = Server | Http2SecureServer;

/** Longer than the proxies that may stand in front keep theirs. */
const KEPT_MS = 72_000;

const HTTP1: ServerOptions = {
  keepAliveTimeout: KEPT_MS,
  // An upload may take as long as it moves; only the head has to come at once.
  requestTimeout: 0,
  headersTimeout: 60_000,
  insecureHTTPParser: false,
  // A client that is gone without a word would keep its WebSocket open for ever.
  keepAlive: true,
  keepAliveInitialDelay: 60_000,
};

/** Uploads, downloads and pages of one visitor share a connection; this many at once is more than browsers use. */
const MAX_STREAMS = 256;

export function createPublicServer({ gateway, api, tls }: PublicServerOptions): PublicServer {
  const server =
    tls === undefined
      ? createServer(HTTP1)
      : createSecureServer({
          ...tls,
          allowHTTP1: true,
          http1Options: HTTP1,
          settings: { maxConcurrentStreams: MAX_STREAMS, enableConnectProtocol: false },
        });
  // A wish for anything else than a WebSocket is not heard: the request is answered as if it had none.
  Object.assign(server, { shouldUpgradeCallback: isWebSocket, requestTimeout: 0 });
  server.on('session', (session: ServerHttp2Session) => {
    // What is under way on it may still end.
    session.setTimeout(KEPT_MS, () => session.close());
  });
  server.on('request', (request: ClientRequest, response: ClientResponse) => {
    if (!gateway.handle(request, response)) api(request, response);
  });
  server.on('checkContinue', (request: ClientRequest, response: ClientResponse) => {
    if (gateway.handle(request, response, true)) return;
    response.writeContinue();
    api(request, response);
  });
  server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    gateway.handleUpgrade(request, socket, head);
  });
  return server;
}

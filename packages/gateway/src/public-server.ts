/** The server's one port: requests for a sandbox go through the gateway, all others to the API. */
import { createServer, type IncomingMessage, type Server, type ServerOptions } from 'node:http';
import { createSecureServer, type Http2SecureServer, type ServerHttp2Session } from 'node:http2';
import type { Duplex } from 'node:stream';
import { isWebSocket } from './exchange/web-socket-upgrade.ts';
import type { Gateway } from './gateway.ts';
import type { ClientRequest, ClientResponse } from './response/client-http.ts';

export interface PublicServerOptions {
  readonly gateway: Gateway;
  readonly api: (request: ClientRequest, response: ClientResponse) => void;
  /** With it the server speaks HTTPS, and HTTP/2 to clients that can. */
  readonly tls?: { readonly key: string; readonly cert: string } | undefined;
}

export type PublicServer = Server | Http2SecureServer;

/** The server emits this, with what `upgrade` has, for an upgrade that is for the API of this node. */
export const API_UPGRADE = 'apiUpgrade';

/** Longer than the keep-alive of common reverse proxies, so that a proxy closes first. */
const KEEP_ALIVE_MS = 72_000;

const HTTP1: ServerOptions = {
  keepAliveTimeout: KEEP_ALIVE_MS,
  // An upload may take any time; only the head is bounded.
  requestTimeout: 0,
  headersTimeout: 60_000,
  insecureHTTPParser: false,
  // TCP keep-alive ends the WebSocket of a client that disappeared without closing.
  keepAlive: true,
  keepAliveInitialDelay: 60_000,
};

/** HTTP/2 streams per connection. Uploads, downloads and pages of a client share one; browsers use fewer. */
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
  // An upgrade to anything but a WebSocket is ignored, as HTTP allows.
  Object.assign(server, { shouldUpgradeCallback: isWebSocket, requestTimeout: 0 });
  server.on('session', (session: ServerHttp2Session) => {
    // `close` lets active streams end.
    session.setTimeout(KEEP_ALIVE_MS, () => session.close());
  });
  const { hop } = gateway;
  const answerHere = (request: ClientRequest, response: ClientResponse, expectsContinue: boolean) => {
    if (gateway.handle(request, response, expectsContinue)) return;
    if (expectsContinue) response.writeContinue();
    api(request, response);
  };
  const answer = (request: ClientRequest, response: ClientResponse, expectsContinue: boolean) => {
    const here = () => answerHere(request, response, expectsContinue);
    if (hop === undefined) here();
    else hop.request(request, response, expectsContinue, here);
  };
  server.on('request', (request: ClientRequest, response: ClientResponse) =>
    answer(request, response, false),
  );
  server.on('checkContinue', (request: ClientRequest, response: ClientResponse) =>
    answer(request, response, true),
  );
  server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    const here = () => {
      if (!gateway.handleUpgrade(request, socket, head)) server.emit(API_UPGRADE, request, socket, head);
    };
    if (hop === undefined) here();
    else hop.upgrade(request, socket, head, here);
  });
  return server;
}

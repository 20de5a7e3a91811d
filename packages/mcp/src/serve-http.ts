/**
 * Serves any number of clients over streamable HTTP. Each request brings its own API key of Torpor as a bearer token, so this
 * server has no rights of its own that a web page or another user could borrow.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Torpor } from '@torpor/sdk';
import { createHttpHandler } from './http-handler.ts';
import type { Limits } from './limits.ts';

export interface HttpOptions {
  /** The client of the API for a key. */
  readonly torporFor: (apiKey: string) => Torpor;
  readonly limits: Limits;
  readonly version: string;
  readonly host: string;
  readonly port: number;
  readonly report: (error: Error) => void;
}

export interface HttpServer {
  readonly url: string;
  close(): Promise<void>;
}

const PATH = '/mcp';

export async function serveHttp(options: HttpOptions): Promise<HttpServer> {
  const { torporFor, limits, version, host, port, report } = options;
  const handler = createHttpHandler(version, report);
  const handle = (request: Request, apiKey: string) =>
    handler.answer(request, { torpor: torporFor(apiKey), limits });
  const server = createServer((incoming, outgoing) => {
    answer(incoming, outgoing, handle).catch((error: unknown) => {
      report(error instanceof Error ? error : new Error(String(error)));
      outgoing.destroy();
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(port, host, resolve);
  });
  const bound = server.address() as AddressInfo;
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${bound.port}${PATH}`,
    close: async () => {
      await handler.close();
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

async function answer(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  handle: (request: Request, apiKey: string) => Promise<Response>,
): Promise<void> {
  const url = new URL(incoming.url ?? '/', 'http://localhost');
  if (url.pathname !== PATH) return refuse(outgoing, 404, `The endpoint is ${PATH}.`);
  const headers = new Headers();
  for (const [name, value] of Object.entries(incoming.headers))
    for (const one of [value ?? []].flat()) headers.append(name, one);
  const apiKey = keyIn(headers);
  if (apiKey === undefined)
    return refuse(outgoing, 401, 'Send an API key of Torpor as Authorization: Bearer <key>.');
  const gone = new AbortController();
  outgoing.once('close', () => gone.abort());
  const { method = 'GET' } = incoming;
  const hasBody = method !== 'GET' && method !== 'HEAD';
  const body = hasBody ? { body: Readable.toWeb(incoming) as ReadableStream, duplex: 'half' as const } : {};
  const response = await handle(new Request(url, { method, headers, signal: gone.signal, ...body }), apiKey);
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  if (response.body === null) return void outgoing.end();
  // A client that goes away ends the pipeline; that is no error.
  await pipeline(Readable.fromWeb(response.body as never), outgoing).catch(() => {});
}

function refuse(outgoing: ServerResponse, status: number, message: string): void {
  const headers = {
    'content-type': 'application/json',
    ...(status === 401 ? { 'www-authenticate': 'Bearer' } : {}),
  };
  outgoing.writeHead(status, headers).end(JSON.stringify({ error: message }));
}

function keyIn(headers: Headers): string | undefined {
  return /^Bearer +(\S+)$/i.exec(headers.get('authorization') ?? '')?.[1];
}

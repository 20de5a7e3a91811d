/** A fake server: it sends the replies that a test sets, and records the requests. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';

export interface Request {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

export interface Reply {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly json?: unknown;
  readonly text?: string;
  /** Writes the response itself. */
  readonly raw?: (response: ServerResponse) => void;
}

export interface ApiServer {
  readonly url: string;
  readonly requests: Request[];
  /** Sets the reply for `METHOD /path`; `*` in a path stands for one segment. */
  answer(route: string, reply: Reply | ((request: Request) => Reply)): void;
  /** Sets the reply for every request from now on. */
  answerAll(reply: (request: Request) => Reply): void;
  close(): Promise<void>;
}

export async function apiServer(): Promise<ApiServer> {
  const requests: Request[] = [];
  const routes = new Map<string, (request: Request) => Reply>();
  let toAll: ((request: Request) => Reply) | undefined;
  const server = createServer(async (incoming, response) => {
    const url = new URL(incoming.url ?? '/', 'http://server');
    const request: Request = {
      method: incoming.method ?? '',
      path: url.pathname,
      query: url.searchParams,
      headers: incoming.headers,
      body: (await buffer(incoming)).toString('utf8'),
    };
    requests.push(request);
    const reply = toAll ?? find(routes, request);
    send(response, reply?.(request) ?? notFound(request));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    answer: (route, reply) => routes.set(route, typeof reply === 'function' ? reply : () => reply),
    answerAll: (reply) => {
      toAll = reply;
    },
    close: async () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

function find(routes: ReadonlyMap<string, (request: Request) => Reply>, { method, path }: Request) {
  const exact = routes.get(`${method} ${path}`);
  if (exact !== undefined) return exact;
  const wanted = `${method} ${path}`.split('/');
  for (const [route, reply] of routes) {
    const parts = route.split('/');
    if (parts.length === wanted.length && parts.every((part, i) => part === '*' || part === wanted[i]))
      return reply;
  }
  return undefined;
}

function notFound({ method, path }: Request): Reply {
  return errorReply(404, 'not_found', `There is no ${method} ${path}.`);
}

/** An error in the API's format. */
export function errorReply(status: number, code: string, message: string, more: object = {}): Reply {
  const error = {
    code,
    message,
    retryable: false,
    hint: `Hint for ${code}.`,
    requestId: REQUEST_ID,
    ...more,
  };
  return { status, json: { error } };
}

export const REQUEST_ID = 'req_dddddddddddddddddddd';

function send(response: ServerResponse, reply: Reply): void {
  if (reply.raw !== undefined) {
    reply.raw(response);
    return;
  }
  const body = reply.json === undefined ? (reply.text ?? '') : JSON.stringify(reply.json);
  response.writeHead(reply.status ?? 200, {
    'content-type': reply.json === undefined ? 'text/plain' : 'application/json',
    'x-request-id': REQUEST_ID,
    ...reply.headers,
  });
  response.end(body);
}

/** Sends one request through a gateway, as a well-behaved client. */
import { type Agent, type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http';
import { buffer } from 'node:stream/consumers';

export interface Asked {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  readonly body?: string | Buffer;
  readonly agent?: Agent;
  readonly signal?: AbortSignal;
  /** The address of the server; the loopback by default. */
  readonly address?: string;
  /** The address of the client. */
  readonly localAddress?: string;
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly rawHeaders: readonly string[];
  readonly trailers: Readonly<Record<string, string | undefined>>;
  readonly body: Buffer;
  readonly text: string;
  json<T = Record<string, unknown>>(): T;
}

export async function ask(port: number, host: string, asked: Asked = {}): Promise<Answer> {
  const response = await open(port, host, asked);
  const body = await buffer(response);
  const text = body.toString('utf8');
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    rawHeaders: response.rawHeaders,
    trailers: response.trailers,
    body,
    text,
    json: () => JSON.parse(text),
  };
}

/** Resolves when the head of the response has come. */
export function open(port: number, host: string, asked: Asked = {}): Promise<IncomingMessage> {
  const {
    method = 'GET',
    path = '/',
    headers = {},
    body,
    agent,
    signal,
    address = '127.0.0.1',
    localAddress,
  } = asked;
  return new Promise((resolve, reject) => {
    const outgoing = request({
      host: address,
      port,
      method,
      path,
      headers: { host, ...headers } as Record<string, string>,
      agent: agent ?? false,
      ...(localAddress === undefined ? {} : { localAddress }),
      ...(signal === undefined ? {} : { signal }),
    });
    outgoing.on('response', resolve);
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

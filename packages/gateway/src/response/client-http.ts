/** The client's request and response, where HTTP/1.1 and HTTP/2 differ in Node. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { constants, type Http2ServerRequest, type Http2ServerResponse } from 'node:http2';

export type ClientRequest = IncomingMessage | Http2ServerRequest;
/** Node declares the same methods differently for HTTP/1.1 and HTTP/2; these declarations hold for both. */
export type ClientResponse = (ServerResponse | Http2ServerResponse) & {
  writeHead(status: number, headers: object): unknown;
  writeInformation(status: number, headers: readonly string[] | HeadersByName): unknown;
  flushHeaders(): void;
  write(bytes: Buffer): boolean;
  end(text?: string, encoding?: 'latin1'): unknown;
  addTrailers(trailers: HeadersByName): void;
};

/** A repeated header has an array of values. */
export type HeadersByName = Readonly<Record<string, string | string[]>>;

/** `raw`: names and values alternate. */
export function headersByName(raw: readonly string[]): HeadersByName {
  const byName: Record<string, string | string[]> = Object.create(null);
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i] as string;
    const before = byName[name];
    const value = raw[i + 1] as string;
    byName[name] = before === undefined ? value : [before, value].flat();
  }
  return byName;
}

/** Sends a 1xx response. Node takes its headers in one form for HTTP/1.1 and in another for HTTP/2. */
export function writeInformational(response: ClientResponse, status: number, raw: readonly string[]): void {
  response.writeInformation(status, 'stream' in response ? headersByName(raw) : raw);
}

export function isHttp2(request: ClientRequest): request is Http2ServerRequest {
  return 'stream' in request;
}

/** Breaks the response off in such a way that the client cannot take it for a complete one. */
export function abortResponse(response: ClientResponse): void {
  if ('stream' in response) response.stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  else response.destroy();
}

export type BodyKind = 'none' | 'sized' | 'chunked';

/** How the request's body is passed on. */
export function bodyKindOf(request: ClientRequest): BodyKind {
  const { 'content-length': length, 'transfer-encoding': coding } = request.headers;
  if (isHttp2(request)) {
    if (request.stream.endAfterHeaders) return 'none';
    return length === undefined ? 'chunked' : 'sized';
  }
  if (coding !== undefined) return 'chunked';
  return length === undefined || Number(length) === 0 ? 'none' : 'sized';
}

/** Whether a request body that has ended was in fact broken off: Node emits `end` for a reset HTTP/2 stream too. */
export function isBrokenOff(request: ClientRequest): boolean {
  return (
    isHttp2(request) && (request.stream.aborted || request.stream.rstCode !== constants.NGHTTP2_NO_ERROR)
  );
}

/** Whether a browser navigates, as opposed to a program's request or a page's subresource. */
export function isNavigation(request: ClientRequest): boolean {
  const { method, headers } = request;
  if (method !== 'GET' && method !== 'HEAD') return false;
  const mode = headers['sec-fetch-mode'];
  if (mode !== undefined && mode !== 'navigate') return false;
  return (headers.accept ?? '').split(',').some((part) => /^\s*text\/html\s*(?:;|$)/i.test(part));
}

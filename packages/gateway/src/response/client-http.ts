/** The client's side of a request, in HTTP/1.1 or HTTP/2, as far as the two differ. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { constants, type Http2ServerRequest, type Http2ServerResponse } from 'node:http2';

export type ClientRequest = IncomingMessage | Http2ServerRequest;
/** The types of the two say the same in two ways; this is what both can do. */
export type ClientResponse = (ServerResponse | Http2ServerResponse) & {
  writeHead(status: number, headers: object): unknown;
  writeInformation(status: number, headers: readonly string[] | HeadersByName): unknown;
  flushHeaders(): void;
  write(bytes: Buffer): boolean;
  end(text?: string, encoding?: 'latin1'): unknown;
  addTrailers(trailers: HeadersByName): void;
};

/** A name that comes twice has both values. */
export type HeadersByName = Readonly<Record<string, string | string[]>>;

/** `raw`: names and values take turns. */
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

/** An answer that announces another. Node takes its headers in one form for HTTP/1.1 and in another for HTTP/2. */
export function writeInformational(response: ClientResponse, status: number, raw: readonly string[]): void {
  response.writeInformation(status, 'stream' in response ? headersByName(raw) : raw);
}

export function isHttp2(request: ClientRequest): request is Http2ServerRequest {
  return 'stream' in request;
}

/** Breaks the answer off in such a way that the client cannot take it for a whole one. */
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

/** Whether a body that has come to its end was only broken off: Node ends that of a stream that is reset, too. */
export function isBrokenOff(request: ClientRequest): boolean {
  return (
    isHttp2(request) && (request.stream.aborted || request.stream.rstCode !== constants.NGHTTP2_NO_ERROR)
  );
}

/** A person who goes somewhere, as opposed to a program, or a page that loads its parts. */
export function isNavigation(request: ClientRequest): boolean {
  const { method, headers } = request;
  if (method !== 'GET' && method !== 'HEAD') return false;
  const mode = headers['sec-fetch-mode'];
  if (mode !== undefined && mode !== 'navigate') return false;
  return (headers.accept ?? '').split(',').some((part) => /^\s*text\/html\s*(?:;|$)/i.test(part));
}

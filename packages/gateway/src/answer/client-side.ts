/** The client's side of a request, in HTTP/1.1 or HTTP/2, as far as the two differ. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { constants, type Http2ServerRequest, type Http2ServerResponse } from 'node:http2';

export type ClientRequest = IncomingMessage | Http2ServerRequest;
/** The types of the two say the same in two ways; this is what both can do. */
export type ClientResponse = (ServerResponse | Http2ServerResponse) & {
  writeHead(status: number, headers: object): unknown;
  writeInformation(status: number, headers: readonly string[]): unknown;
  flushHeaders(): void;
  write(bytes: Buffer): boolean;
  end(text?: string, encoding?: 'latin1'): unknown;
  addTrailers(trailers: Readonly<Record<string, string | string[]>>): void;
};

export function isHttp2(request: ClientRequest): request is Http2ServerRequest {
  return 'stream' in request;
}

/** Breaks the answer off in such a way that the client cannot take it for a whole one. */
export function abortAnswer(response: ClientResponse): void {
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

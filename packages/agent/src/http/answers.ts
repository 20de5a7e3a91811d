/** What every plain HTTP handler needs: JSON answers, bounded JSON bodies, and errors as clients expect them. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { JsonValue } from '@bufbuild/protobuf';
import { UNKNOWN_USER_HEADER } from '@torpor/envd';
import { factsOf, TorporError } from '@torpor/protocol';
import { UnknownUser } from '../identity/users.ts';

export type Request = IncomingMessage;
export type Response = ServerResponse;

const MAX_BODY_BYTES = 1024 * 1024;

export function answerJson(response: Response, status: number, body: unknown): void {
  const text = Buffer.from(JSON.stringify(body));
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': text.length });
  response.end(text);
}

/** After the first byte of an answer, closing the connection is the only way to report an error. */
export function answerError(response: Response, thrown: unknown): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const error = TorporError.from(thrown);
  markUnknownUser(response, error);
  const status = factsOf(error.code).http;
  answerJson(response, status, { code: status, message: error.message });
}

/** For RPC paths, whose clients expect Connect's error codes. */
export function answerRpcError(response: Response, thrown: unknown): void {
  const error = TorporError.from(thrown);
  markUnknownUser(response, error);
  const { http, connect } = factsOf(error.code);
  answerJson(response, http, { code: connect, message: error.message });
}

function markUnknownUser(response: Response, error: TorporError): void {
  if (error instanceof UnknownUser) response.setHeader(UNKNOWN_USER_HEADER, '1');
}

export async function readBody(request: Request): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  // Leaving the loop early must not destroy the request: the rest is read and dropped, and the connection is reused.
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    size += chunk.length;
    if (size > MAX_BODY_BYTES) throw new TorporError('invalid_request', 'The body is too large.');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

export function parseJson(body: Buffer): JsonValue {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch (cause) {
    throw new TorporError('invalid_request', 'The body is not JSON.', { cause });
  }
}

export function queryOf(request: Request): URLSearchParams {
  const url = request.url ?? '';
  const mark = url.indexOf('?');
  return new URLSearchParams(mark === -1 ? '' : url.slice(mark + 1));
}

export function pathOf(request: Request): string {
  return (request.url ?? '').split('?', 1)[0] ?? '';
}

/** Options of the RPC handlers, and protection of the RPC library against harmful requests. */
import { compressionGzip } from '@connectrpc/connect-node';
import type { Request, Response } from './answers.ts';
import { connectErrors } from './connect-errors.ts';

/** A larger message is refused before it is read. */
const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;

export const RPC_OPTIONS = {
  connect: true,
  grpc: false,
  grpcWeb: false,
  readMaxBytes: MAX_MESSAGE_BYTES,
  interceptors: [connectErrors],
  acceptCompression: [compressionGzip],
};

const MAX_TIMER_MS = 2_147_483_647;

/**
 * Works around three weaknesses of the RPC library:
 * - It builds a URL from the Host header, and an invalid header causes an uncaught exception.
 * - A timeout of 0, or one too long for a timer, fires at once instead of never.
 * - A message that it refuses half read leaves the connection stuck.
 */
export function prepareForConnect(request: Request, response: Response): Request {
  request.headers.host = 'agent';
  const timeout = request.headers['connect-timeout-ms'];
  if (timeout !== undefined && /^\d+$/.test(String(timeout))) {
    if (Number(timeout) === 0 || Number(timeout) > MAX_TIMER_MS) delete request.headers['connect-timeout-ms'];
  }
  const keepOpen = { [Symbol.asyncIterator]: () => request.iterator({ destroyOnReturn: false }) };
  response.once('finish', () => request.resume());
  return Object.assign(request, keepOpen);
}

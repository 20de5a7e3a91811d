/** How RPCs are served here, and what a request must not do to the library that serves them. */
import { compressionGzip } from '@connectrpc/connect-node';
import { speakConnect } from '../agent-failures.ts';
import type { Request, Response } from './answers.ts';

/** A message past this is refused before it is read. */
const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;

export const RPC_OPTIONS = {
  connect: true,
  grpc: false,
  grpcWeb: false,
  readMaxBytes: MAX_MESSAGE_BYTES,
  interceptors: [speakConnect],
  acceptCompression: [compressionGzip],
};

const MAX_TIMER_MS = 2_147_483_647;

/**
 * The library makes a URL out of the Host header and throws where nobody catches when it cannot; a timeout
 * of 0, or one too long for a timer, would fire at once instead of never; and a message it refuses half
 * read would leave a connection on which nothing moves any more.
 */
export function safeForConnect(request: Request, response: Response): Request {
  request.headers.host = 'agent';
  const timeout = request.headers['connect-timeout-ms'];
  if (timeout !== undefined && /^\d+$/.test(String(timeout))) {
    if (Number(timeout) === 0 || Number(timeout) > MAX_TIMER_MS) delete request.headers['connect-timeout-ms'];
  }
  const gentle = { [Symbol.asyncIterator]: () => request.iterator({ destroyOnReturn: false }) };
  response.once('finish', () => request.resume());
  return Object.assign(request, gentle);
}

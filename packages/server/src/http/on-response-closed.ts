import type { FastifyReply } from 'fastify';

/** Calls back when the response was sent or the client has gone away, also when that has already happened. */
export function onResponseClosed({ raw }: FastifyReply, callback: () => void): void {
  if (raw.closed) callback();
  else raw.once('close', callback);
}

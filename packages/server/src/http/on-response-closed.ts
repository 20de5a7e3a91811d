/** The end of an answer, whichever way it ends. */
import type { FastifyReply } from 'fastify';

/** Calls back once the answer was sent or its caller has gone, also when that has happened already. */
export function onResponseClosed({ raw }: FastifyReply, callback: () => void): void {
  if (raw.closed) callback();
  else raw.once('close', callback);
}

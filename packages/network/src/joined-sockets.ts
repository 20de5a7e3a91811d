/**
 * Joins two sockets to one connection: passes bytes on with backpressure, the end of a side as an end and the failure of a
 * side as a reset.
 */
import type { Socket } from 'node:net';

export function join(from: Socket, to: Socket): void {
  from.pipe(to);
  from.once('close', () => {
    if (!from.readableEnded || from.errored !== null) reset(to);
  });
}

/** Sends a reset to the other end. Does nothing to a closed socket. */
export function reset(socket: Socket): void {
  if (socket.destroyed) return;
  // A reset of a socket that the kernel has closed already is an error that can be ignored.
  socket.on('error', () => {});
  if (socket.connecting) socket.destroy();
  else socket.resetAndDestroy();
}

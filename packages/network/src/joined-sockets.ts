/**
 * Two sockets as one connection: bytes both ways, no faster than the slower side takes them, each side's end
 * passed on as an end and each side's failure as a reset.
 */
import type { Socket } from 'node:net';

export function join(from: Socket, to: Socket): void {
  from.pipe(to);
  from.once('close', () => {
    if (!from.readableEnded || from.errored !== null) reset(to);
  });
}

/** The other end sees a reset, whatever was under way. Fine on a socket that is closed. */
export function reset(socket: Socket): void {
  if (socket.destroyed) return;
  // A reset that comes too late for the kernel is told as an error, which nobody has to hear.
  socket.on('error', () => {});
  if (socket.connecting) socket.destroy();
  else socket.resetAndDestroy();
}

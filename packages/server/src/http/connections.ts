/**
 * Which connections have a request on them. Node's own count of idle ones leaves out those that have not sent
 * their first request yet, and clients that open connections in advance would hold up every stop.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Returns how to close those that nothing is under way on. */
export function watchConnections(server: Server): () => void {
  const underWay = new Map<Socket, number>();
  server.on('connection', (socket: Socket) => {
    underWay.set(socket, 0);
    socket.once('close', () => underWay.delete(socket));
  });
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    underWay.set(socket, (underWay.get(socket) ?? 0) + 1);
    response.once('close', () => {
      const left = underWay.get(socket);
      if (left !== undefined) underWay.set(socket, left - 1);
    });
  });
  // From there on it is somebody else's, who ends it with a word.
  server.on('upgrade', ({ socket }: IncomingMessage) => {
    underWay.delete(socket);
  });
  return () => {
    for (const [socket, requests] of underWay) if (requests === 0) socket.destroy();
  };
}

/**
 * Which connections have a request on them. Node's own count of idle ones leaves out those that have not sent
 * their first request yet, and clients that open connections in advance would hold up every stop.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { PublicServer } from '@torpor/gateway';

export interface Connections {
  /** Closes those that nothing is under way on. */
  closeIdle(): void;
  closeAll(): void;
}

export function watchConnections(server: PublicServer): Connections {
  const open = new Set<Socket>();
  const underWay = new Map<Socket, number>();
  // Over TLS a request knows only the socket inside the socket.
  server.on('setSecureContext' in server ? 'secureConnection' : 'connection', (socket: Socket) => {
    open.add(socket);
    // Sessions of HTTP/2 have many requests at once, and are closed by the server itself when they are done.
    if ((socket as TLSSocket).alpnProtocol !== 'h2') underWay.set(socket, 0);
    socket.once('close', () => {
      open.delete(socket);
      underWay.delete(socket);
    });
  });
  const count = ({ socket }: IncomingMessage, response: ServerResponse) => {
    const before = underWay.get(socket);
    if (before === undefined) return;
    underWay.set(socket, before + 1);
    response.once('close', () => {
      const left = underWay.get(socket);
      if (left !== undefined) underWay.set(socket, left - 1);
    });
  };
  server.on('request', count);
  server.on('checkContinue', count);
  // From there on it is somebody else's, who ends it with a word.
  server.on('upgrade', ({ socket }: IncomingMessage) => {
    underWay.delete(socket);
  });
  return {
    closeIdle: () => {
      for (const [socket, requests] of underWay) if (requests === 0) socket.destroy();
    },
    closeAll: () => {
      for (const socket of open) socket.destroy();
    },
  };
}

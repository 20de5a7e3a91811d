/**
 * Tracks which connections have a request in progress. Node's own idle tracking leaves out connections that have not
 * sent their first request yet. Clients that open connections in advance would delay every stop.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { PublicServer } from '@torpor/gateway';

export interface Connections {
  /** Closes the connections without a request in progress. */
  closeIdle(): void;
  closeAll(): void;
}

export function watchConnections(server: PublicServer): Connections {
  const open = new Set<Socket>();
  const underWay = new Map<Socket, number>();
  // Over TLS `request.socket` is the TLS socket, not the TCP socket.
  server.on('setSecureContext' in server ? 'secureConnection' : 'connection', (socket: Socket) => {
    open.add(socket);
    // An HTTP/2 session has many requests at once. The server itself closes it when they are done.
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
  // After an upgrade the WebSocket code owns the connection and sends a close frame.
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

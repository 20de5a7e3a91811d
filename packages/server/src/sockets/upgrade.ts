/**
 * Sends WebSocket upgrades through ordinary GET routes. So an upgrade has what every request has: an id, a checked key,
 * a deadline, and errors in the usual shape until the socket is open.
 */
import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { KEY_PROTOCOL_PREFIX, SOCKET_PROTOCOL, TorporError } from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type WebSocket, WebSocketServer } from 'ws';
import type { RoutesApp } from '../http/routes-app.ts';

interface PendingUpgrade {
  readonly socket: Duplex;
  readonly head: Buffer;
}

const MAX_FRAME_BYTES = 4 * 1024 * 1024;

/** Upgrade requests on the way to their route, which may accept them or not. */
const pendingUpgrades = new WeakMap<IncomingMessage, PendingUpgrade>();

const sockets = new WebSocketServer({
  noServer: true,
  maxPayload: MAX_FRAME_BYTES,
  // Output of programs is mostly small messages; compression would cost more than it saves.
  perMessageDeflate: false,
  // Never answers with the other offered protocol, which holds the key.
  handleProtocols: (offered) => (offered.has(SOCKET_PROTOCOL) ? SOCKET_PROTOCOL : false),
});

const requestIds = new WeakMap<IncomingMessage, string>();
sockets.on('headers', (lines, request) => {
  lines.push(`X-Request-Id: ${requestIds.get(request)}`);
});

/**
 * Every upgrade goes to its route as a GET. A route that opens no socket answers it like any other request. `event` is the
 * one by which the server tells of upgrades for the API.
 */
export function routeUpgrades(app: RoutesApp, event: string): void {
  const { server } = app;
  const onUpgrade = (request: IncomingMessage, socket: Duplex, head: Buffer) =>
    route(app, request, socket, head);
  server.on(event, onUpgrade);
  app.addHook('onClose', async () => void server.off(event, onUpgrade));
}

function route(app: RoutesApp, request: IncomingMessage, socket: Duplex, head: Buffer): void {
  socket.on('error', () => socket.destroy());
  const response = new ServerResponse(request);
  // A response instead of a socket is the last one on this connection.
  response.shouldKeepAlive = false;
  response.once('finish', () => socket.end());
  response.assignSocket(socket as Parameters<typeof response.assignSocket>[0]);
  useOfferedKey(request);
  pendingUpgrades.set(request, { socket, head });
  app.routing(request, response);
}

/** A browser can send a key only as a subprotocol. */
function useOfferedKey({ headers }: IncomingMessage): void {
  if (headers.authorization !== undefined || headers['x-api-key'] !== undefined) return;
  const offered = (headers['sec-websocket-protocol'] ?? '').split(',').map((text) => text.trim());
  const key = offered.find((text) => text.startsWith(KEY_PROTOCOL_PREFIX));
  if (key !== undefined) headers.authorization = `Bearer ${key.slice(KEY_PROTOCOL_PREFIX.length)}`;
}

export interface AcceptedSocket {
  readonly webSocket: WebSocket;
  /** The number of bytes that have arrived on the connection. */
  readonly bytesRead: () => number;
}

/** Accepts the upgrade. From now on the request has no response but its socket. */
export function acceptUpgrade(request: FastifyRequest, reply: FastifyReply): Promise<AcceptedSocket> {
  const pending = pendingUpgrades.get(request.raw);
  if (pending === undefined) {
    throw new TorporError('invalid_request', 'This route accepts only WebSockets.', {
      hint: 'Send "Connection: Upgrade" and "Upgrade: websocket".',
      // Tells a client whose socket was refused that nothing else was wrong.
      details: { upgrade: 'websocket' },
    });
  }
  pendingUpgrades.delete(request.raw);
  requestIds.set(request.raw, request.id);
  reply.hijack();
  return new Promise((resolve, reject) => {
    pending.socket.once('close', () => reject(new TorporError('timeout', 'The client disconnected.')));
    sockets.handleUpgrade(request.raw, pending.socket as never, pending.head, (webSocket) => {
      resolve({ webSocket, bytesRead: () => request.socket.bytesRead });
    });
  });
}

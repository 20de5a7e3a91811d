/** The client's side of a WebSocket handshake: a response on the raw socket, and the tunnel that takes the socket over. */
import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { ClientResponse } from '../response/client-http.ts';
import { type TunnelParts, WebSocketTunnel } from './web-socket-tunnel.ts';

/** The client's socket after its upgrade request. */
export interface Upgrade {
  readonly socket: Duplex;
  /** Bytes that came right after the request's head. */
  readonly head: Buffer;
}

export function isWebSocket({ headers }: IncomingMessage): boolean {
  return headers.upgrade?.toLowerCase() === 'websocket';
}

/** A response on a socket that Node's server has detached. The response is the last thing on that socket. */
export function responseOn(request: IncomingMessage, socket: Duplex): ServerResponse & ClientResponse {
  // From the beginning: a client that leaves while its sandbox wakes must not raise an uncaught error.
  socket.on('error', () => socket.destroy());
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  response.once('finish', () => socket.end());
  response.assignSocket(socket as Socket);
  // A detached socket has no other reader that would notice its end.
  socket.on('readable', readEnd);
  socket.on('end', destroySocket);
  return response as ServerResponse & ClientResponse;
}

function readEnd(this: Duplex): void {
  if (this.readableLength === 0) this.read();
}

function destroySocket(this: Duplex): void {
  this.destroy();
}

export function openTunnel(
  parts: Omit<TunnelParts, 'client'>,
  response: ServerResponse,
  { socket, head: fromClient }: Upgrade,
  /** The headers for the client; names and values alternate. */
  headers: readonly string[],
  fromApp: Buffer,
): void {
  socket.off('readable', readEnd);
  socket.off('end', destroySocket);
  response.detachSocket(socket as Socket);
  let text = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n';
  for (let i = 0; i < headers.length; i += 2) text += `${headers[i]}: ${headers[i + 1]}\r\n`;
  socket.write(`${text}\r\n`, 'latin1');
  new WebSocketTunnel({ ...parts, client: socket }).start({ fromClient, fromApp });
}

/** A request that becomes a WebSocket: the client's connection as it is answered, and as it is taken over. */
import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { ClientResponse } from '../response/client-http.ts';
import type { ResponseHead } from '../upstream/response-head.ts';
import { type ResponseHeaderRules, responseHeaders } from './response-headers.ts';
import { type TunnelParts, WebSocketTunnel } from './web-socket-tunnel.ts';

/** What a client sends with its wish to switch. */
export interface Upgrade {
  readonly socket: Duplex;
  /** What came right after it. */
  readonly head: Buffer;
}

export function isWebSocket({ headers }: IncomingMessage): boolean {
  return headers.upgrade?.toLowerCase() === 'websocket';
}

/** An answer on a connection that Node has let go of. Whatever is answered there is the last thing on it. */
export function responseOn(request: IncomingMessage, socket: Duplex): ServerResponse & ClientResponse {
  // From the beginning: a client that is gone while its sandbox wakes must not be anybody's fault.
  socket.on('error', () => socket.destroy());
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  response.once('finish', () => socket.end());
  response.assignSocket(socket as Socket);
  // Nobody else would notice that it goes away.
  socket.on('readable', noticeEnd);
  socket.on('end', leave);
  return response as ServerResponse & ClientResponse;
}

function noticeEnd(this: Duplex): void {
  if (this.readableLength === 0) this.read();
}

function leave(this: Duplex): void {
  this.destroy();
}

export function openTunnel(
  parts: Omit<TunnelParts, 'client'>,
  response: ServerResponse,
  { socket, head: fromClient }: Upgrade,
  head: ResponseHead,
  rules: Pick<ResponseHeaderRules, 'host' | 'sharesOrigin' | 'dropsCookies'>,
  fromApp: Buffer,
): void {
  socket.off('readable', noticeEnd);
  socket.off('end', leave);
  response.detachSocket(socket as Socket);
  const headers = responseHeaders(head.headers, { ...rules, isChunked: false });
  let text = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n';
  for (let i = 0; i < headers.length; i += 2) text += `${headers[i]}: ${headers[i + 1]}\r\n`;
  socket.write(`${text}\r\n`, 'latin1');
  new WebSocketTunnel({ ...parts, client: socket }).start({ fromClient, fromApp });
}

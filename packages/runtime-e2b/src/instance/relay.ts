/**
 * Relays HTTP from a Unix socket on this machine to one port of a sandbox at the provider, with the provider's host name and
 * headers. The rest of Torpor reaches the sandbox in the same way as a local one.
 */
import { once } from 'node:events';
import { mkdir, rm } from 'node:fs/promises';
import { createServer, request as httpRequest, type IncomingMessage, type Server } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { dirname } from 'node:path';
import type { Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { ACCESS_TOKEN_HEADER, sameSecret } from '@torpor/envd';
import type { Connection } from '../provider/provider.ts';

export interface RelayOptions {
  readonly socketPath: string;
  readonly connection: Connection;
  readonly port: number;
  readonly sandboxUrl?: string | undefined;
  /** The token that callers must send, if any. The relay replaces it by the provider's token. */
  readonly token?: string | undefined;
}

export interface Relay {
  readonly socketPath: string;
  close(): void;
}

export async function openRelay(options: RelayOptions): Promise<Relay> {
  const { socketPath, token } = options;
  await mkdir(dirname(socketPath), { recursive: true, mode: 0o700 });
  await rm(socketPath, { force: true });
  const server: Server = createServer(
    { requestTimeout: 0, keepAliveTimeout: 75_000 },
    (incoming, response) => {
      const given = incoming.headers[ACCESS_TOKEN_HEADER];
      if (token !== undefined && !(typeof given === 'string' && sameSecret(given, token))) {
        response.writeHead(401, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ code: 401, message: 'This is not the token of the sandbox.' }));
        return;
      }
      const outgoing = send(options, incoming);
      outgoing.on('response', (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.rawHeaders);
        pipeline(answer, response).catch(() => {});
      });
      outgoing.on('error', () => {
        if (response.headersSent) response.destroy();
        else response.writeHead(502).end();
      });
      response.on('close', () => outgoing.destroy());
      pipeline(incoming, outgoing).catch(() => outgoing.destroy());
    },
  );
  server.on('upgrade', (incoming, socket, head) => upgrade(options, incoming, socket, head));
  server.listen(socketPath);
  await once(server, 'listening');
  server.unref();
  return {
    socketPath,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

function send(options: RelayOptions, incoming: IncomingMessage) {
  const { connection, port, sandboxUrl, token } = options;
  const base = sandboxUrl ?? `https://${port}-${connection.providerId}.${connection.domain}`;
  const url = new URL(incoming.url ?? '/', base);
  const { [ACCESS_TOKEN_HEADER]: given, host: _, ...rest } = incoming.headers;
  const headers = {
    ...rest,
    host: url.host,
    'e2b-sandbox-id': connection.providerId,
    'e2b-sandbox-port': String(port),
    ...(connection.trafficToken === null ? {} : { 'e2b-traffic-access-token': connection.trafficToken }),
    ...accessHeader(token === undefined ? given : connection.token),
  };
  const request = url.protocol === 'https:' ? httpsRequest : httpRequest;
  return request(url, { method: incoming.method, headers });
}

function accessHeader(value: string | string[] | null | undefined): Record<string, string> {
  return typeof value === 'string' ? { [ACCESS_TOKEN_HEADER]: value } : {};
}

function upgrade(options: RelayOptions, incoming: IncomingMessage, socket: Duplex, head: Buffer): void {
  socket.on('error', () => {});
  const outgoing = send(options, incoming);
  outgoing.on('error', () => socket.destroy());
  outgoing.on('response', () => socket.destroy());
  outgoing.on('upgrade', (answer, upstream, first) => {
    upstream.on('error', () => socket.destroy());
    const lines = [`HTTP/1.1 ${answer.statusCode} ${answer.statusMessage}`];
    for (let i = 0; i < answer.rawHeaders.length; i += 2) {
      lines.push(`${answer.rawHeaders[i]}: ${answer.rawHeaders[i + 1]}`);
    }
    socket.write(`${lines.join('\r\n')}\r\n\r\n`);
    socket.write(first);
    upstream.write(head);
    socket.pipe(upstream).pipe(socket);
  });
  outgoing.end();
}

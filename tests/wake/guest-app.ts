/**
 * The app inside the sandbox. It records every request in files, which outlive a pause, so that a test can count
 * afterwards how often and in which order requests ran. It needs only Node.
 */
import type { Service } from '@torpor/protocol';

/** Its source text runs inside the sandbox, so it must not refer to anything outside of itself. */
function guest(): void {
  const { appendFileSync } = require('node:fs') as typeof import('node:fs');
  const { createServer } = require('node:http') as typeof import('node:http');
  const { createHash } = require('node:crypto') as typeof import('node:crypto');
  const started = Date.now();
  const server = createServer((request, response) => {
    const [, what = '', name = ''] = (request.url ?? '').split('/');
    if (what === 'run') appendFileSync('runs', `${name}\n`);
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => {
      const answer = () => response.end(`${request.method} ${name} ${Buffer.concat(pieces).toString()}`);
      if (what === 'slow') setTimeout(answer, Number(name));
      else if (what === 'where') response.end(`${request.socket.localAddress} ${request.socket.localPort}`);
      else if (what === 'big') response.end(Buffer.alloc(Number(name), 'x'));
      else if (what === 'page') {
        response.setHeader('content-type', 'text/html');
        response.end(`<!doctype html><title>the app</title><h1 id="app">awake since ${started}</h1>`);
      } else answer();
    });
  });
  // Handles only text frames of less than 126 bytes; the tests send no others.
  server.on('upgrade', (request, socket) => {
    const accept = createHash('sha1')
      .update(`${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
      .digest('base64');
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
    );
    let waiting = Buffer.alloc(0);
    socket.on('error', () => {});
    socket.on('data', (bytes: Buffer) => {
      waiting = Buffer.concat([waiting, bytes]);
      for (;;) {
        const length = (waiting[1] ?? 0) & 0x7f;
        if (waiting.length < 6 + length) return;
        const isClose = ((waiting[0] ?? 0) & 0x0f) === 8;
        const mask = waiting.subarray(2, 6);
        const text = Buffer.from(waiting.subarray(6, 6 + length).map((byte, i) => byte ^ (mask[i % 4] ?? 0)));
        waiting = waiting.subarray(6 + length);
        if (isClose) {
          socket.end(Buffer.concat([Buffer.from([0x88, text.length]), text]));
          return;
        }
        if (!text.toString().startsWith('message ')) appendFileSync('messages', `${text.toString()}\n`);
        socket.write(Buffer.concat([Buffer.from([0x81, text.length]), text]));
      }
    });
  });
  server.listen(Number(process.env['PORT'] ?? 3000), process.env['LISTEN'] ?? '127.0.0.1');
}

/** `delayMs`: how long the app takes until it listens, like a dev server. */
export function guestService(more: Partial<Service> & { readonly delayMs?: number } = {}): Service {
  const { delayMs = 0, ...service } = more;
  const script = `setTimeout(${guest.toString()}, ${delayMs})`;
  const encoded = Buffer.from(script).toString('base64');
  // A gVisor sandbox sees only the system's Node.
  const node = `N='${process.execPath}'; [ -x "$N" ] || N=node`;
  const command = `${node}; exec "$N" -e "$(echo ${encoded} | base64 -d)"`;
  return { name: 'web', command, port: 3000, ...service };
}

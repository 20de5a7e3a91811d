/** The child of `namespace-sockets.ts`: makes what it is told to, hands it over, and ends when it is let go. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { WantedSocket } from './namespace-sockets.ts';

/** Handed over, a socket has to be taken by the other side before this copy may go. */
process.once('disconnect', () => process.exit(0));

for (const { kind, host, port } of JSON.parse(process.argv[2] ?? '[]') as WantedSocket[]) {
  if (kind === 'tcp') {
    const server = createServer().listen({ host, port });
    await once(server, 'listening');
    process.send?.(kind, server);
  } else {
    const socket = createSocket('udp4').bind(port, host);
    await once(socket, 'listening');
    process.send?.(kind, socket);
  }
}

/** The child process of `namespace-sockets.ts`: opens the requested sockets, passes them on, and exits on disconnect. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { WantedSocket } from './namespace-sockets.ts';

/** The parent must have received a socket before this process closes its copy. */
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

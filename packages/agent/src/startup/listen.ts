/** Makes the agent's HTTP server listen on a TCP port or a unix socket. */
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import type { Server } from 'node:http';
import type { Listen } from './agent-options.ts';

/** The umask that gives a unix socket mode 0600. */
const OWNER_ONLY_UMASK = 0o177;

/** Resolves with the address that was bound, with the port that the system chose for port 0. */
export async function listen(server: Server, where: Listen): Promise<Listen> {
  if ('path' in where) {
    // A socket file outlives the process that made it.
    await rm(where.path, { force: true });
    listenOwnerOnly(server, where.path);
  } else {
    server.listen(where);
  }
  await once(server, 'listening');
  const address = server.address();
  return 'host' in where && typeof address === 'object' && address !== null
    ? { host: where.host, port: address.port }
    : where;
}

/**
 * Creates the socket with its final mode. A client that finds the socket may move its directory away at once, and then
 * a later `chmod` would fail.
 */
function listenOwnerOnly(server: Server, path: string): void {
  const before = process.umask(OWNER_ONLY_UMASK);
  try {
    server.listen({ path });
  } finally {
    process.umask(before);
  }
}

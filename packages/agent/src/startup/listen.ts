/** Opening the agent's door. */
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import type { Server } from 'node:http';
import type { Listen } from './agent-options.ts';

/** Taken away from the mode of a socket: it is its owner's alone. */
const OTHERS = 0o177;

/** Resolves with where it really listens. */
export async function listen(server: Server, where: Listen): Promise<Listen> {
  if ('path' in where) {
    // A socket file outlives the process that made it.
    await rm(where.path, { force: true });
    listenAlone(server, where.path);
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
 * The mode is right from the first moment: whoever finds the door open may take its directory away from us at once,
 * and nothing of it could be changed afterwards.
 */
function listenAlone(server: Server, path: string): void {
  const before = process.umask(OTHERS);
  try {
    server.listen({ path });
  } finally {
    process.umask(before);
  }
}

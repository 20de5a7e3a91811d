/**
 * Makes the sockets of a content directory again. tar leaves sockets out: a socket means nothing without the process that held
 * it. But the manifest lists them, and a checkpoint without them would count as damaged.
 */
import { once } from 'node:events';
import { lstat, open, rename } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { ManifestEntry } from '@torpor/engine';
import { isMissing } from '@torpor/host';
import { textToName } from './entry-name.ts';

/** `entries` are those that were packed. Everything else that tar cannot pack makes it fail. */
export async function makeSockets(directory: string, entries: readonly ManifestEntry[]): Promise<void> {
  for (const { path, type } of entries) {
    if (type !== 'other') continue;
    const place = Buffer.concat([Buffer.from(`${directory}/`), textToName(path)]);
    const isThere = await lstat(place).then(
      () => true,
      (thrown: unknown) => {
        if (isMissing(thrown)) return false;
        throw thrown;
      },
    );
    if (!isThere) await makeSocket(directory, place);
  }
}

/** Through the open directory, because the path of a socket may have 107 bytes only. Closing the server removes the old name. */
async function makeSocket(directory: string, place: Buffer): Promise<void> {
  const top = await open(directory, 'r');
  const server = createServer();
  try {
    server.listen(`/proc/self/fd/${top.fd}/.torpor-socket`);
    await once(server, 'listening');
    await rename(`${directory}/.torpor-socket`, place);
  } finally {
    server.close();
    await top.close();
  }
}

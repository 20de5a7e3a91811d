/** Marks the objects of one data directory, or of one cluster of nodes, so that two owners never delete each other's. */
import { randomBytes } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing, writeFileDurably } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

/** `shared` is the home of a cluster of nodes: whatever node a sandbox belongs to, every node finds its objects. */
export async function homeIn(dataDir: string, shared?: string): Promise<string> {
  const directory = join(dataDir, 'kubernetes');
  const path = join(directory, 'home');
  const before = await readFile(path, 'utf8').catch((thrown: unknown) => {
    if (isMissing(thrown)) return undefined;
    throw thrown;
  });
  if (shared !== undefined) {
    if (before === undefined) return shared;
    throw new TorporError(
      'conflict',
      'This data directory has objects in a Kubernetes cluster that the other nodes would not find.',
      {
        hint: `Start the server without --node, kill its sandboxes on Kubernetes runtimes, and remove ${path}.`,
      },
    );
  }
  if (before !== undefined) return before;
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const fresh = randomBytes(10).toString('hex');
  await writeFileDurably(path, fresh);
  return fresh;
}

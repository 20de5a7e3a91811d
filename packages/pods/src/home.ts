/** Marks the objects of one data directory in a cluster, so that two servers never delete each other's. */
import { randomBytes } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing, writeFileDurably } from '@torpor/host';

export async function homeIn(dataDir: string): Promise<string> {
  const directory = join(dataDir, 'kubernetes');
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const path = join(directory, 'home');
  const before = await readFile(path, 'utf8').catch((thrown: unknown) => {
    if (isMissing(thrown)) return undefined;
    throw thrown;
  });
  if (before !== undefined) return before;
  const fresh = randomBytes(10).toString('hex');
  await writeFileDurably(path, fresh);
  return fresh;
}

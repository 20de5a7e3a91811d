/** Replaces entries of a directory by new ones that were written elsewhere and are complete. */
import { join } from 'node:path';
import { isMissing, removeTree, syncDirectory } from '@torpor/host';
import { syncFileSystem } from '@torpor/layers';
import { makeDirectory } from './durable.ts';
import type { StoreFs } from './store-fs.ts';

interface Places {
  /** Where the new entries are written; on the same file system, and emptied before and after. */
  readonly work: string;
  readonly target: string;
  /** The directory of the checkpoint, which may be missing too. */
  readonly sealed: string;
}

/**
 * A crash in between leaves some entries old or missing. They are then found damaged and brought back again, because the
 * checkpoint is complete elsewhere.
 */
export async function putInPlace(
  fs: StoreFs,
  { work, target, sealed }: Places,
  write: (directory: string) => Promise<void>,
): Promise<void> {
  const [arriving, leaving] = [join(work, 'new'), join(work, 'old')];
  try {
    await removeTree(work, fs);
    for (const directory of [work, arriving, leaving]) await fs.mkdir(directory, { mode: 0o700 });
    await write(arriving);
    await syncFileSystem(arriving);
    await makeDirectory(fs, sealed);
    await makeDirectory(fs, target);
    for (const name of await fs.readdir(arriving, { encoding: 'buffer' })) {
      await fs.rename(inside(target, name), inside(leaving, name)).catch(ignoreMissing);
      await fs.rename(inside(arriving, name), inside(target, name));
    }
    await syncDirectory(target, fs);
  } finally {
    await removeTree(work, fs);
  }
}

function inside(directory: string, name: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${directory}/`), name]);
}

function ignoreMissing(thrown: unknown): void {
  if (!isMissing(thrown)) throw thrown;
}

/** The part of this machine's memory in which images are kept at hand. */
import { mkdir, rm, statfs } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import type { ImagePlaces } from './images.ts';

/** Where every Linux has a file system in memory; in a container it may be a small one. */
const SHARED_MEMORY = '/dev/shm';
const TMPFS = 0x01021994;
/** Some twenty small sandboxes that went to sleep last, and the templates that new ones come from. */
const MOST_BYTES = 1024 ** 3;
/** On a small machine less, and never all that is there. */
const PART_OF_MACHINE = 1 / 8;
const PART_OF_FREE = 1 / 2;

export function memoryDirectory(tag: string, shared = SHARED_MEMORY): string {
  return join(shared, `torpor-${tag}`);
}

/** Undefined where there is no such place, or somebody else has taken it. */
export async function memoryForImages(tag: string, shared = SHARED_MEMORY): Promise<ImagePlaces['memory']> {
  const directory = memoryDirectory(tag, shared);
  try {
    const { type, bavail, bsize } = await statfs(shared);
    if (type !== TMPFS) return undefined;
    // Everybody may write there: what is not ours to make is not ours to use.
    await rm(directory, { recursive: true, force: true });
    await mkdir(directory, { mode: 0o700 });
    // In a container the machine is what that may have of it; zero is no limit.
    const machine = Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY);
    const bytes = Math.min(MOST_BYTES, machine * PART_OF_MACHINE, bavail * bsize * PART_OF_FREE);
    return { directory, bytes: Math.floor(bytes) };
  } catch {
    return undefined;
  }
}

/** Finds the part of this machine's memory that caches unpacked memory images. */
import { mkdir, rm, statfs } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import type { ImageDirectories } from './images.ts';

/** Every Linux has a file system in memory there; in a container it may be small. */
const SHARED_MEMORY = '/dev/shm';
const TMPFS = 0x01021994;
/** Room for some twenty small sandboxes that were paused last, and for the templates of new ones. */
const MAX_BYTES = 1024 ** 3;
/** Less on a small machine, and never all of its memory. */
const PART_OF_MACHINE = 1 / 8;
const PART_OF_FREE = 1 / 2;

export function memoryDirectory(tag: string, shared = SHARED_MEMORY): string {
  return join(shared, `torpor-${tag}`);
}

/** Undefined when there is no such file system, or the directory belongs to another user. */
export async function memoryForImages(
  tag: string,
  shared = SHARED_MEMORY,
): Promise<ImageDirectories['memory']> {
  const directory = memoryDirectory(tag, shared);
  try {
    const { type, bavail, bsize } = await statfs(shared);
    if (type !== TMPFS) return undefined;
    // Every user may write there. A directory that another user made must not be used.
    await rm(directory, { recursive: true, force: true });
    await mkdir(directory, { mode: 0o700 });
    // In a container the limit of the container counts; zero means that there is no limit.
    const machine = Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY);
    const bytes = Math.min(MAX_BYTES, machine * PART_OF_MACHINE, bavail * bsize * PART_OF_FREE);
    return { directory, bytes: Math.floor(bytes) };
  } catch {
    return undefined;
  }
}

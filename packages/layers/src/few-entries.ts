/**
 * Directories with few entries, as most layers are. This process reads and syncs them itself: a program takes some milliseconds
 * to start, and `sync` also waits for what everything else on the machine has written to the same file system.
 */
import { constants, type Stats } from 'node:fs';
import { lstat, open, readdir } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { forEachBounded } from '@torpor/host';

/** From some hundred entries on, one sync of the whole file system is faster on an idle machine. */
const MOST_ENTRIES = 64;
/** A directory that has or had more names than may be read here. */
const LARGE_DIRECTORY_BYTES = 32 * 1024;
const AT_ONCE = 8;
const SEPARATOR = Buffer.from('/');
const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants;

export interface TreeEntry {
  /** Names are bytes. */
  readonly path: Buffer;
  readonly stats: Stats;
}

/**
 * Reads a directory and everything in it. Undefined when it has many entries, and when an entry cannot be read or is on another
 * file system: a program then does the same and says what is wrong.
 */
export async function readFewEntries(top: string): Promise<readonly TreeEntry[] | undefined> {
  try {
    const first = { path: Buffer.from(top), stats: await lstat(top) };
    const found: TreeEntry[] = [first];
    // The loop also visits the entries that it adds.
    for (const { path, stats } of found) {
      if (stats.dev !== first.stats.dev) return undefined;
      if (!stats.isDirectory()) continue;
      if (stats.size > LARGE_DIRECTORY_BYTES) return undefined;
      const names = await readdir(path, { encoding: 'buffer' });
      if (found.length + names.length > MOST_ENTRIES) return undefined;
      const below = names.map((name) => Buffer.concat([path, SEPARATOR, name]));
      found.push(...(await Promise.all(below.map(async (at) => ({ path: at, stats: await lstat(at) })))));
    }
    return found;
  } catch {
    return undefined;
  }
}

/** Whether `syncEntries` makes all of them durable. Other kinds of entries cannot be opened to be synced. */
export function areSyncable(entries: readonly TreeEntry[]): boolean {
  return entries.every(({ stats }) => stats.isFile() || stats.isDirectory());
}

export async function syncEntries(entries: readonly TreeEntry[], signal?: AbortSignal): Promise<void> {
  await forEachBounded(
    entries,
    AT_ONCE,
    async ({ path }) => {
      const entry = await open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
      try {
        await entry.sync();
      } finally {
        await entry.close();
      }
    },
    signal,
  );
}

/** The sizes of the files that lie directly in `top`, by name. */
export function sizesAtTop(top: string, entries: readonly TreeEntry[]): Record<string, number> {
  const files = entries.filter(({ path, stats }) => stats.isFile() && dirname(path.toString()) === top);
  return Object.fromEntries(files.map(({ path, stats }) => [basename(path.toString()), stats.size]));
}

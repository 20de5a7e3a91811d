/**
 * Lists a directory tree, each directory before its entries. Symbolic links are not followed.
 *
 * A sandbox may choose any bytes as file names. Names are held as text with one character per byte ("latin1"), so that
 * they compare, sort and go into JSON without loss.
 */
import type { BigIntStats } from 'node:fs';
import { chmod, lstat, readdir } from 'node:fs/promises';
import { errnoOf, forEachBounded } from '@torpor/host';

/** A path relative to the top of the tree, one character per byte. Empty for the top itself. */
export type TreePath = string;

export interface TreeEntry {
  readonly path: TreePath;
  readonly depth: number;
  readonly stats: BigIntStats;
}

export const CALLS_AT_ONCE = 32;

const OWNER_ALL = 0o700;

/** The absolute path as bytes, for file system calls. */
export function placeOf(top: string, path: TreePath): Buffer {
  return path === ''
    ? Buffer.from(top)
    : Buffer.concat([Buffer.from(`${top}/`), Buffer.from(path, 'latin1')]);
}

/** Makes directories readable whose modes exclude their owner while `work` runs, and restores the modes afterwards. */
export async function withTree<T>(
  top: string,
  signal: AbortSignal,
  work: (entries: readonly TreeEntry[]) => Promise<T>,
): Promise<T> {
  const opened: TreeEntry[] = [];
  try {
    const entries = await walk(top, opened, signal);
    return await work(entries);
  } finally {
    for (const { path, stats } of opened.toReversed()) {
      await chmod(placeOf(top, path), Number(stats.mode & 0o7777n)).catch(() => {});
    }
  }
}

async function walk(top: string, opened: TreeEntry[], signal: AbortSignal): Promise<TreeEntry[]> {
  let level: TreeEntry[] = [{ path: '', depth: 0, stats: await lstat(top, { bigint: true }) }];
  let entries: TreeEntry[] = [];
  while (level.length > 0) {
    entries = entries.concat(level);
    level = await childrenOf(top, level, opened, signal);
  }
  return entries;
}

async function childrenOf(
  top: string,
  parents: readonly TreeEntry[],
  opened: TreeEntry[],
  signal: AbortSignal,
): Promise<TreeEntry[]> {
  const names: { readonly path: TreePath; readonly depth: number }[] = [];
  const directories = parents.filter(({ stats }) => stats.isDirectory());
  await forEachBounded(
    directories,
    CALLS_AT_ONCE,
    async (directory) => {
      const start = directory.path === '' ? '' : `${directory.path}/`;
      for (const name of await namesIn(placeOf(top, directory.path), directory, opened)) {
        names.push({ path: start + name.toString('latin1'), depth: directory.depth + 1 });
      }
    },
    signal,
  );
  const children: TreeEntry[] = [];
  await forEachBounded(
    names,
    CALLS_AT_ONCE,
    async ({ path, depth }) => {
      children.push({ path, depth, stats: await lstat(placeOf(top, path), { bigint: true }) });
    },
    signal,
  );
  return children;
}

/** Reading the entries of a directory needs the search permission besides the read permission. */
async function namesIn(place: Buffer, entry: TreeEntry, opened: TreeEntry[]): Promise<Buffer[]> {
  const mode = Number(entry.stats.mode & 0o7777n);
  if ((mode & 0o500) === 0o500 || process.geteuid?.() === 0) return readdir(place, { encoding: 'buffer' });
  try {
    await chmod(place, mode | OWNER_ALL);
    opened.push(entry);
  } catch (thrown) {
    // The directory belongs to another user; `readdir` below reports that.
    if (errnoOf(thrown) === undefined) throw thrown;
  }
  return readdir(place, { encoding: 'buffer' });
}

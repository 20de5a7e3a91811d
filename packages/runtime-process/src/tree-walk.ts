/**
 * A directory tree as a list, directories before what is in them. Nothing is followed.
 *
 * Names are bytes that a sandbox chose. They are held as text of one character per byte ("latin1"), so
 * that they compare, sort and go into JSON without loss.
 */
import type { BigIntStats } from 'node:fs';
import { chmod, lstat, readdir } from 'node:fs/promises';
import { errnoOf, forEachBounded } from '@torpor/host';

/** Relative to the top of the tree, one character per byte; empty for the top itself. */
export type TreePath = string;

export interface TreeEntry {
  readonly path: TreePath;
  readonly depth: number;
  readonly stats: BigIntStats;
}

export const CALLS_AT_ONCE = 32;

const OWNER_ALL = 0o700;

/** The bytes to hand to the system. */
export function placeOf(top: string, path: TreePath): Buffer {
  return path === ''
    ? Buffer.from(top)
    : Buffer.concat([Buffer.from(`${top}/`), Buffer.from(path, 'latin1')]);
}

/** Directories that their owner closed to itself are opened while `work` runs, and closed again after it. */
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

/** Being in a directory takes the permission to search it, which listing it does not. */
async function namesIn(place: Buffer, entry: TreeEntry, opened: TreeEntry[]): Promise<Buffer[]> {
  const mode = Number(entry.stats.mode & 0o7777n);
  if ((mode & 0o500) === 0o500 || process.geteuid?.() === 0) return readdir(place, { encoding: 'buffer' });
  try {
    await chmod(place, mode | OWNER_ALL);
    opened.push(entry);
  } catch (thrown) {
    // Not ours to open: the reading below says what is wrong with it.
    if (errnoOf(thrown) === undefined) throw thrown;
  }
  return readdir(place, { encoding: 'buffer' });
}

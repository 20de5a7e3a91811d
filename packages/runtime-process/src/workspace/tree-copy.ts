/**
 * Copies a directory tree with modes, times, links and names.
 *
 * Node sets times with an error of less than a microsecond. Setting them again from the copy gives the same values.
 */
import type { BigIntStats } from 'node:fs';
import { chmod, lchown, link, lutimes, mkdir, readlink, symlink } from 'node:fs/promises';
import { forEachBounded } from '@torpor/host';
import { copyContent } from './file-copy.ts';
import { CALLS_AT_ONCE, placeOf, type TreeEntry, type TreePath } from './tree-walk.ts';

export interface TreeCopy {
  readonly from: string;
  /** Must not exist yet. */
  readonly to: string;
  readonly entries: readonly TreeEntry[];
  /** The mode of the copy of an entry. */
  modeOf(entry: TreeEntry): number;
  /** The user id that owns the copy. Null leaves it to the user of this process. */
  readonly owner: number | null;
  /** Creates the file without copying, for example by a hard link. False when the file has to be copied. */
  reuse?(entry: TreeEntry, to: Buffer): Promise<boolean>;
  /** Called once for each file, also for one with several names, after its last change. */
  placed?(entry: TreeEntry, to: Buffer): Promise<void>;
  /** Called when all entries exist and the directories are still writable. */
  beforeClosing?(): Promise<void>;
  readonly signal: AbortSignal;
}

/** Sockets, named pipes and devices are not copied. Sockets are useless without the processes that held them. */
export async function copyTree(copy: TreeCopy): Promise<void> {
  const directories = copy.entries.filter(({ stats }) => stats.isDirectory());
  const levels = byDepth(directories);
  for (const level of levels) {
    await inParallel(copy, level, (entry) => mkdir(placeOf(copy.to, entry.path), { mode: 0o700 }));
  }
  const { first, again } = splitLinks(copy.entries.filter(({ stats }) => stats.isFile()));
  await inParallel(copy, first, (entry) => placeFile(copy, entry));
  await inParallel(copy, again, ({ entry, same }) => placeLink(copy, entry, same));
  const symlinks = copy.entries.filter(({ stats }) => stats.isSymbolicLink());
  await inParallel(copy, symlinks, (entry) => placeSymlink(copy, entry));
  const { placed } = copy;
  if (placed !== undefined)
    await inParallel(copy, first, (entry) => placed(entry, placeOf(copy.to, entry.path)));
  await copy.beforeClosing?.();
  // The deepest first: the final mode of a directory may exclude this process.
  for (const level of levels.toReversed()) {
    await inParallel(copy, level, (entry) => finish(copy, entry, placeOf(copy.to, entry.path)));
  }
}

function inParallel<T>(
  copy: TreeCopy,
  items: readonly T[],
  work: (item: T) => Promise<unknown>,
): Promise<void> {
  return forEachBounded(items, CALLS_AT_ONCE, async (item) => void (await work(item)), copy.signal);
}

function byDepth(entries: readonly TreeEntry[]): TreeEntry[][] {
  const levels: TreeEntry[][] = [];
  for (const entry of entries) {
    levels[entry.depth] ??= [];
    levels[entry.depth]?.push(entry);
  }
  return levels;
}

interface LinkedEntry {
  readonly entry: TreeEntry;
  /** The path under which the same file was placed first. */
  readonly same: TreePath;
}

/** Splits off further names of a file that has several hard links in the tree. */
function splitLinks(files: readonly TreeEntry[]): { first: TreeEntry[]; again: LinkedEntry[] } {
  const firsts = new Map<string, TreePath>();
  const first: TreeEntry[] = [];
  const again: LinkedEntry[] = [];
  for (const entry of files) {
    const { dev, ino, nlink } = entry.stats;
    const file = `${dev}:${ino}`;
    const same = nlink > 1n ? firsts.get(file) : undefined;
    if (same !== undefined) again.push({ entry, same });
    else {
      firsts.set(file, entry.path);
      first.push(entry);
    }
  }
  return { first, again };
}

async function placeFile(copy: TreeCopy, entry: TreeEntry): Promise<void> {
  const to = placeOf(copy.to, entry.path);
  if ((await copy.reuse?.(entry, to)) === true) return;
  await copyContent(placeOf(copy.from, entry.path), to, entry.stats, copy.signal);
  await finish(copy, entry, to, Number(entry.stats.mode & 0o7777n));
}

async function placeLink(copy: TreeCopy, entry: TreeEntry, same: TreePath): Promise<void> {
  const to = placeOf(copy.to, entry.path);
  await link(placeOf(copy.to, same), to);
}

async function placeSymlink(copy: TreeCopy, entry: TreeEntry): Promise<void> {
  const to = placeOf(copy.to, entry.path);
  await symlink(await readlink(placeOf(copy.from, entry.path), { encoding: 'buffer' }), to);
  if (copy.owner !== null) await lchown(to, copy.owner, copy.owner);
  await setTimes(to, entry.stats);
}

/** Changing the owner clears mode bits, so the mode is set after it. The times come last. */
async function finish(copy: TreeCopy, entry: TreeEntry, to: Buffer, modeNow?: number): Promise<void> {
  const mode = copy.modeOf(entry);
  if (copy.owner !== null) await lchown(to, copy.owner, copy.owner);
  if (mode !== modeNow) await chmod(to, mode);
  await setTimes(to, entry.stats);
}

function setTimes(place: Buffer, { atimeNs, mtimeNs }: BigIntStats): Promise<void> {
  return lutimes(place, Number(atimeNs) / 1e9, Number(mtimeNs) / 1e9);
}

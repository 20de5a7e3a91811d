/**
 * Copying a directory tree with what makes it the same tree: modes, times, links, names.
 *
 * Times are kept as exactly as Node can set them, to less than a microsecond; set again they stay the same.
 */
import type { BigIntStats } from 'node:fs';
import { chmod, lchown, link, lutimes, mkdir, readlink, symlink } from 'node:fs/promises';
import { forEachBounded } from '@torpor/host';
import { copyContent } from './file-copy.ts';
import { CALLS_AT_ONCE, placeOf, type TreeEntry, type TreePath } from './tree-walk.ts';

export interface TreeCopy {
  readonly from: string;
  /** Must not be there yet. */
  readonly to: string;
  readonly entries: readonly TreeEntry[];
  /** The mode that the copy of an entry gets. */
  modeOf(entry: TreeEntry): number;
  /** Whom everything is given to; null leaves it to whoever copies. */
  readonly owner: number | null;
  /** Puts a file in its place without copying it; false when it has to be copied. */
  reuse?(entry: TreeEntry, to: Buffer): Promise<boolean>;
  /** Called for each file, once if it has several names, when nothing about it changes any more. */
  placed?(entry: TreeEntry, to: Buffer): Promise<void>;
  /** Called when everything is in its place and the directories can still be written. */
  beforeClosing?(): Promise<void>;
  readonly signal: AbortSignal;
}

/** Sockets, fifos and devices are left out: the first mean nothing without the processes that held them. */
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
  // The deepest first: a directory may be closed to us once it has its own mode.
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

/** Files with several names in the tree: each is placed once and linked from there. */
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

/** A change of owner takes away mode bits, so the mode comes after it, and the times last. */
async function finish(copy: TreeCopy, entry: TreeEntry, to: Buffer, modeNow?: number): Promise<void> {
  const mode = copy.modeOf(entry);
  if (copy.owner !== null) await lchown(to, copy.owner, copy.owner);
  if (mode !== modeNow) await chmod(to, mode);
  await setTimes(to, entry.stats);
}

function setTimes(place: Buffer, { atimeNs, mtimeNs }: BigIntStats): Promise<void> {
  return lutimes(place, Number(atimeNs) / 1e9, Number(mtimeNs) / 1e9);
}

/**
 * Lists the content of a checkpoint: every file, directory, symlink and special node below a directory. No symlink is followed
 * and only regular files are opened, because a sandbox chose these entries.
 *
 * Every entry is listed. Measured on a machine with 2 cores, 10,000 files take about a quarter of a second, so `inspect`
 * needs no summary.
 */
import type { BigIntStats } from 'node:fs';
import { type ContentSelection, isSelected, type ManifestEntry } from '@torpor/engine';
import { allDone, forEachBounded, syncDirectory } from '@torpor/host';
import { syncFile } from './durable.ts';
import { nameToText } from './entry-name.ts';
import { mapReadErrors, mapWriteErrors, type Place } from './storage-error.ts';
import type { StoreFs } from './store-fs.ts';

/** More calls at once would only wait for Node's few file system threads. */
const CALLS_AT_ONCE = 32;

export interface ContentNode {
  readonly entry: ManifestEntry;
  /** In bytes, because a name may not be text. */
  readonly path: Buffer;
  readonly stats: BigIntStats;
}

/** Sorted by path, as in manifests. Directories that are not selected are not read. */
export async function listContent(
  fs: StoreFs,
  content: string,
  place: Place,
  signal?: AbortSignal,
  selection?: ContentSelection,
): Promise<ContentNode[]> {
  let nodes: ContentNode[] = [];
  let level: Directory[] = [{ path: Buffer.from(content), text: '' }];
  while (level.length > 0) {
    const children = (await childrenOf(fs, level, place, signal)).filter(({ text }) =>
      isSelected(text, selection),
    );
    const found = await nodesOf(fs, children, place, signal);
    nodes = nodes.concat(found);
    level = found
      .filter((node) => node.entry.type === 'directory')
      .map((node) => ({ path: node.path, text: `${node.entry.path}/` }));
  }
  return nodes.sort((a, b) => (a.entry.path < b.entry.path ? -1 : 1));
}

/**
 * Makes the content durable. The rename that seals the checkpoint comes after that, so files and directories need no order
 * among themselves. Syncs at the same time share commits of the file system's journal.
 */
export async function syncContent(
  fs: StoreFs,
  content: string,
  nodes: readonly ContentNode[],
  place: Place,
  signal?: AbortSignal,
): Promise<void> {
  const sync = ({ entry, path }: ContentNode) =>
    mapWriteErrors({ ...place, entry: entry.path }, path.toString(), () =>
      entry.type === 'directory' ? syncDirectory(path, fs) : syncFile(fs, path),
    );
  const synced = nodes.filter(({ entry }) => entry.type === 'file' || entry.type === 'directory');
  await allDone(
    forEachBounded(synced, CALLS_AT_ONCE, sync, signal),
    mapWriteErrors(place, content, () => syncDirectory(content, fs)),
  );
}

/** The allocated blocks, which for a sparse file are fewer than its size. Each inode counts once. */
export function allocatedBytes(nodes: readonly ContentNode[]): number {
  const seen = new Set<string>();
  let bytes = 0n;
  for (const { entry, stats } of nodes) {
    if (entry.type !== 'directory' && stats.nlink > 1n) {
      const inode = `${stats.dev}:${stats.ino}`;
      if (seen.has(inode)) continue;
      seen.add(inode);
    }
    bytes += stats.blocks * 512n;
  }
  return Number(bytes);
}

interface Directory {
  readonly path: Buffer;
  /** The prefix of the paths of its entries: empty, or ending in `/`. */
  readonly text: string;
}

interface Child {
  readonly path: Buffer;
  readonly text: string;
}

async function childrenOf(
  fs: StoreFs,
  directories: readonly Directory[],
  place: Place,
  signal?: AbortSignal,
): Promise<Child[]> {
  const children: Child[] = [];
  await forEachBounded(
    directories,
    CALLS_AT_ONCE,
    async ({ path, text }) => {
      const at = text === '' ? place : { ...place, entry: text.slice(0, -1) };
      const names = await mapReadErrors(at, () => fs.readdir(path, { encoding: 'buffer' }));
      for (const name of names) {
        children.push({ path: Buffer.concat([path, SLASH, name]), text: text + nameToText(name) });
      }
    },
    signal,
  );
  return children;
}

async function nodesOf(
  fs: StoreFs,
  children: readonly Child[],
  place: Place,
  signal?: AbortSignal,
): Promise<ContentNode[]> {
  const nodes: ContentNode[] = [];
  await forEachBounded(
    children,
    CALLS_AT_ONCE,
    async (child) => {
      nodes.push(await mapReadErrors({ ...place, entry: child.text }, () => nodeOf(fs, child)));
    },
    signal,
  );
  return nodes;
}

async function nodeOf(fs: StoreFs, { path, text }: Child): Promise<ContentNode> {
  const stats = await fs.lstat(path, { bigint: true });
  const type = typeOf(stats);
  const bytes = type === 'file' ? Number(stats.size) : 0;
  if (type !== 'symlink') return { entry: { path: text, type, bytes }, path, stats };
  const target = nameToText(await fs.readlink(path, { encoding: 'buffer' }));
  return { entry: { path: text, type, bytes, target }, path, stats };
}

function typeOf(stats: BigIntStats): ManifestEntry['type'] {
  if (stats.isFile()) return 'file';
  if (stats.isDirectory()) return 'directory';
  return stats.isSymbolicLink() ? 'symlink' : 'other';
}

const SLASH = Buffer.from('/');

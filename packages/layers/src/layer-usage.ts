/** Measures the files of a layer: its entries, and the bytes that they take on the disk. */
import { readFewEntries, type TreeEntry } from './few-entries.ts';
import { findEntries } from './file-programs.ts';
import type { Usage } from './layers.ts';

const BLOCK_BYTES = 512;

/** What counts of an entry. `blocks` is its size on the disk. */
export interface MeasuredEntry {
  readonly kind: 'directory' | 'socket' | 'other';
  readonly links: number;
  readonly inode: string;
  readonly blocks: number;
}

/**
 * Measures a directory that may change meanwhile. An entry that appears or disappears may count or not. This happens while a
 * sandbox is frozen, and regularly for every running sandbox.
 */
export async function usageOf(top: string, signal?: AbortSignal): Promise<Usage> {
  const few = await readFewEntries(top);
  return countOf(few?.map(measured) ?? (await findEntries(top, { mayChange: true, signal })));
}

/**
 * Measures a directory that does not change, for its seal. `few` are its entries, where they were read. Sockets do not count as
 * entries: no archive keeps them, because a socket means nothing without the process that held it.
 */
export async function sealedUsageOf(
  top: string,
  few: readonly TreeEntry[] | undefined,
  signal?: AbortSignal,
): Promise<Usage> {
  const entries = few?.map(measured) ?? (await findEntries(top, { mayChange: false, signal }));
  const sockets = entries.filter(({ kind }) => kind === 'socket').length;
  const { bytes, entries: all } = countOf(entries);
  return { bytes, entries: all - sockets };
}

function measured({ stats }: TreeEntry): MeasuredEntry {
  const kind = stats.isDirectory() ? 'directory' : stats.isSocket() ? 'socket' : 'other';
  return { kind, links: stats.nlink, inode: String(stats.ino), blocks: stats.blocks };
}

/** The bytes of a file with several hard links count once. */
function countOf(entries: readonly MeasuredEntry[]): Usage {
  const seen = new Set<string>();
  let bytes = 0;
  for (const { kind, links, inode, blocks } of entries) {
    if (kind !== 'directory' && links !== 1) {
      if (seen.has(inode)) continue;
      seen.add(inode);
    }
    bytes += blocks * BLOCK_BYTES;
  }
  return { bytes, entries: entries.length };
}

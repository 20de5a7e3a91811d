/**
 * Measures a directory. This happens while a sandbox is frozen, and regularly for every running sandbox, so `find` reads no
 * more of each entry than is needed: 10,000 entries take some 30 ms.
 */
import { programOutput } from '@torpor/host';
import type { Usage } from './layers.ts';

const BLOCK = 512;
/** Kind, hard links, inode, blocks. */
const FORMAT = '%y %n %i %b\\n';
/** The exit status of `find` when it could not read some entries. */
const SOME_ENTRIES_UNREADABLE = 1;

/** Measures a directory that may change meanwhile. An entry that appears or disappears may count or not. */
export async function usageOf(top: string, signal?: AbortSignal): Promise<Usage> {
  const { bytes, entries } = await countEntries(top, [SOME_ENTRIES_UNREADABLE], signal);
  return { bytes, entries };
}

/**
 * Measures a directory that does not change, for its seal. Sockets do not count as entries: no archive keeps them, because a
 * socket means nothing without the process that held it.
 */
export async function sealedUsageOf(top: string, signal?: AbortSignal): Promise<Usage> {
  const { bytes, entries, sockets } = await countEntries(top, [], signal);
  return { bytes, entries: entries - sockets };
}

async function countEntries(
  top: string,
  acceptedStatuses: readonly number[],
  signal?: AbortSignal,
): Promise<UsageCounter> {
  const listing = await programOutput('find', [top, '-xdev', '-printf', FORMAT], {
    signal,
    acceptedStatuses,
  });
  const counter = new UsageCounter();
  for (const line of listing.split('\n')) if (line !== '') counter.add(line);
  return counter;
}

/** Counts a file with several hard links once. */
class UsageCounter {
  entries = 0;
  sockets = 0;
  bytes = 0;
  readonly #seen = new Set<string>();

  add(line: string): void {
    const [kind, links, inode = '', blocks] = line.split(' ');
    this.entries++;
    if (kind === 's') this.sockets++;
    if (kind !== 'd' && links !== '1') {
      if (this.#seen.has(inode)) return;
      this.#seen.add(inode);
    }
    this.bytes += Number(blocks) * BLOCK;
  }
}

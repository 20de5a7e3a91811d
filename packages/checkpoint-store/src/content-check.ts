/** Compares the content of a checkpoint with its manifest, by names, types and sizes. */
import type { ManifestEntry } from '@torpor/engine';
import { corrupt, missing, type Place } from './storage-error.ts';

/**
 * Throws at the first difference. Both lists are sorted by path; when this returns, they agree index by index. An added entry
 * is damage too: the runtime would start with it.
 */
export function checkContent(
  sealed: readonly ManifestEntry[],
  found: readonly ManifestEntry[],
  place: Place,
): void {
  for (const [index, entry] of sealed.entries()) {
    const there = found[index];
    if (there === undefined || there.path > entry.path) throw missing({ ...place, entry: entry.path });
    if (there.path < entry.path) throw corrupt({ ...place, entry: there.path }, 'unexpected');
    if (there.type !== entry.type) throw corrupt({ ...place, entry: entry.path }, 'type');
    if (there.bytes !== entry.bytes) throw corrupt({ ...place, entry: entry.path }, 'size');
    if (there.target !== entry.target) throw corrupt({ ...place, entry: entry.path }, 'target');
  }
  const added = found[sealed.length];
  if (added !== undefined) throw corrupt({ ...place, entry: added.path }, 'unexpected');
}

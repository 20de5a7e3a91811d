/**
 * `contents.jsonl`, beside the files of a layer: the entries of the layer at its first verification. The first line names the
 * seal that the file belongs to, then there is a line for each entry sorted by path, and the last line has the sha256 of all
 * lines before it.
 *
 * The first verification writes the file, after the commit. Every later verification compares with it.
 */
import { readFile } from 'node:fs/promises';
import { isMissing, sha256Of, writeFileDurably } from '@torpor/host';
import type { ContentLine } from './layer-contents.ts';
import { corrupt, mapReadErrors, type Place } from './layer-failure.ts';
import type { SealRecord } from './layers.ts';
import { shownPath } from './tree-listing.ts';

export async function recordContents(
  path: string,
  seal: SealRecord,
  lines: readonly ContentLine[],
): Promise<void> {
  const first = { version: 1, layerId: seal.layerId, nonce: seal.nonce };
  const text = [first, ...lines].map((line) => `${JSON.stringify(line)}\n`).join('');
  await writeFileDurably(path, `${text}${JSON.stringify({ sha256: sha256Of(text) })}\n`);
}

/** The record of an earlier verification. Undefined when there was none since the layer was sealed. */
export async function recordedContents(
  path: string,
  seal: SealRecord,
  place: Place,
): Promise<readonly ContentLine[] | undefined> {
  const text = await readFile(path, 'utf8').catch((thrown: unknown) => {
    if (isMissing(thrown)) return undefined;
    return mapReadErrors(place, () => Promise.reject(thrown));
  });
  if (text === undefined) return undefined;
  const end = text.lastIndexOf('\n', text.length - 2) + 1;
  try {
    if (JSON.parse(text.slice(end)).sha256 !== sha256Of(text.slice(0, end)))
      throw new Error('another checksum');
    const [first, ...lines] = text
      .slice(0, end - 1)
      .split('\n')
      .map((line) => JSON.parse(line));
    return first.layerId === seal.layerId && first.nonce === seal.nonce ? lines : undefined;
  } catch (cause) {
    throw corrupt(place, 'is not what was written by the first verification', cause);
  }
}

/** The seal has only the number of entries, so the first verification compares no more than that. */
export function compareCount(seal: SealRecord, found: readonly ContentLine[], place: Place): void {
  if (found.length === seal.entries) return;
  throw corrupt(place, `had ${seal.entries} entries when it was sealed and now has ${found.length}`);
}

/** Throws for the first entry that differs from the record. */
export function compareContents(
  recorded: readonly ContentLine[],
  found: readonly ContentLine[],
  place: Place,
): void {
  for (let i = 0; i < Math.max(recorded.length, found.length); i++) {
    const [was, is] = [recorded[i], found[i]];
    if (was !== undefined && is !== undefined && was.path === is.path) {
      if (JSON.stringify(was) === JSON.stringify(is)) continue;
      throw corrupt({ ...place, entry: shownPath(is.path) }, `is not what it was: ${differences(was, is)}`);
    }
    const isGone = is === undefined || (was !== undefined && was.path < is.path);
    const entry = shownPath((isGone ? was : is)?.path ?? '');
    throw corrupt({ ...place, entry }, isGone ? 'is not there any more' : 'was not there before');
  }
}

function differences(was: ContentLine, is: ContentLine): string {
  const fields = new Set([...Object.keys(was), ...Object.keys(is)]) as Set<keyof ContentLine>;
  const changed = [...fields].filter((field) => JSON.stringify(was[field]) !== JSON.stringify(is[field]));
  return changed.join(', ');
}

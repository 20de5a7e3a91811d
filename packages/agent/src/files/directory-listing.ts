/** Lists the entries below a directory, sorted by name, each directory before its content. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { type EntryInfo, FileType } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import { describeEntry, type EntryParts } from './entries.ts';
import { withFileErrors } from './file-errors.ts';
import type { ResolvedPath } from './paths.ts';

/** A longer listing would be an answer of many megabytes and would block the agent while it is built. */
const MAX_ENTRIES = 50_000;

export async function listDirectory(
  directory: ResolvedPath,
  depth: number,
  parts: EntryParts,
): Promise<EntryInfo[]> {
  const entries: EntryInfo[] = [];
  const names = await withFileErrors(directory.path, () => readdir(directory.real));
  await collect(directory, names, depth, parts, entries);
  return entries;
}

async function collect(
  directory: ResolvedPath,
  names: string[],
  depth: number,
  parts: EntryParts,
  entries: EntryInfo[],
): Promise<void> {
  for (const name of names.sort()) {
    const place = { path: join(directory.path, name), real: join(directory.real, name) };
    // An entry may be gone by now, or unreadable. The other entries are still listed.
    const entry = await describeEntry(place, parts).catch(() => undefined);
    if (entry === undefined) continue;
    if (entries.push(entry) > MAX_ENTRIES) {
      throw new TorporError(
        'invalid_request',
        `${directory.path} has more than ${MAX_ENTRIES} entries below it.`,
      );
    }
    const isDirectory = entry.type === FileType.DIRECTORY && entry.symlinkTarget === undefined;
    if (depth <= 1 || !isDirectory) continue;
    const below = await readdir(place.real).catch(() => []);
    await collect(place, below, depth - 1, parts, entries);
  }
}

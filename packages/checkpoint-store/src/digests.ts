/**
 * The digests of a sealed checkpoint's files. They are computed after the commit, so they are kept in a
 * file of their own, `digests.json`: the manifest never changes.
 *
 * The file has two lines: the digests, index by index those of the manifest's entries (null for what is
 * not a file), with the sha256 of the manifest they belong to; and the sha256 of the first line.
 */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import type { ManifestEntry } from '@torpor/engine';
import { forEachBounded } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import type { ContentNode } from './content-tree.ts';
import { syncDirectory, writeSynced } from './durable.ts';
import { parse, readLimited, refuseOtherVersions, sha256Of } from './record.ts';
import { corrupt, type Place, reading, writing } from './storage-error.ts';
import { READ_PLAIN, type StoreFs, withFile } from './store-fs.ts';

const DIGESTS = 'digests.json';
/** Hashing is on the main thread, about a millisecond for a chunk: other requests go on in between. */
const CHUNK_BYTES = 1024 * 1024;
const FILES_AT_ONCE = 4;
/** A digest takes less than this in the file, and the rest of the file much less than the second number. */
const LIMIT_PER_ENTRY = 80;
const LIMIT_BESIDES = 4096;

type Digest = string | null;

/** Reads every file once, and gives the digests by path. A file that ends before or after its recorded size is corrupt. */
export async function digestContent(
  fs: StoreFs,
  nodes: readonly ContentNode[],
  place: Place,
  signal?: AbortSignal,
): Promise<Map<string, string>> {
  const digests = new Map<string, string>();
  await forEachBounded(
    nodes,
    FILES_AT_ONCE,
    async ({ entry, path }) => {
      if (entry.type !== 'file') return;
      const at = { ...place, entry: entry.path };
      digests.set(entry.path, await reading(at, () => digestFile(fs, path, entry.bytes, at, signal)));
    },
    signal,
  );
  return digests;
}

/** What an earlier run recorded, or undefined when there was none. */
export async function readDigests(
  fs: StoreFs,
  directory: string,
  manifest: { readonly sha256: string; readonly entries: readonly ManifestEntry[] },
  place: Place,
): Promise<readonly Digest[] | undefined> {
  const at = { ...place, record: DIGESTS };
  const limit = LIMIT_BESIDES + LIMIT_PER_ENTRY * manifest.entries.length;
  let text: string;
  try {
    text = (await readLimited(fs, join(directory, DIGESTS), limit, at)).toString();
  } catch (error) {
    if (error instanceof TorporError && error.code === 'checkpoint_missing') return undefined;
    throw error;
  }
  const [first = '', second = ''] = text.split('\n');
  if (parse(second, at)['sha256'] !== sha256Of(first)) throw corrupt(at, 'record');

  const record = parse(first, at);
  refuseOtherVersions(record, at);
  const digests = record['digests'];
  // Digests that were brought here from another checkpoint have a checksum that fits.
  if (record['manifest'] !== manifest.sha256 || !Array.isArray(digests)) throw corrupt(at, 'record');
  if (digests.length !== manifest.entries.length) throw corrupt(at, 'record');
  return digests;
}

export async function recordDigests(
  fs: StoreFs,
  directory: string,
  manifestSha256: string,
  digests: readonly Digest[],
  place: Place,
): Promise<void> {
  const path = join(directory, DIGESTS);
  const first = JSON.stringify({ version: 1, manifest: manifestSha256, digests });
  const second = JSON.stringify({ sha256: sha256Of(first) });
  await writing({ ...place, record: DIGESTS }, path, async () => {
    await writeSynced(fs, `${path}.tmp`, `${first}\n${second}\n`);
    await fs.rename(`${path}.tmp`, path);
    await syncDirectory(fs, directory);
  });
}

/**
 * Compares what was read with what is recorded of it. What was not read stays as it is recorded; what was never read
 * before is new. A file that nobody has read yet has no digest, like everything that is not a file.
 */
export function mergeDigests(
  recorded: readonly Digest[] | undefined,
  found: readonly Digest[],
  entries: readonly ManifestEntry[],
  place: Place,
): { readonly digests: readonly Digest[]; readonly isNew: boolean } {
  let isNew = recorded === undefined;
  const digests = entries.map((entry, index) => {
    const before = recorded?.[index] ?? null;
    const now = found[index] ?? null;
    if (before !== null && now !== null && before !== now)
      throw corrupt({ ...place, entry: entry.path }, 'digest');
    isNew ||= before === null && now !== null;
    return before ?? now;
  });
  return { digests, isNew };
}

async function digestFile(
  fs: StoreFs,
  path: Buffer,
  bytes: number,
  place: Place,
  signal: AbortSignal | undefined,
): Promise<string> {
  return withFile(fs, path, READ_PLAIN, async (file) => {
    const hash = createHash('sha256');
    const chunk = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, bytes + 1));
    let total = 0;
    for (;;) {
      signal?.throwIfAborted();
      const { bytesRead } = await file.read(chunk, 0, chunk.length, null);
      if (bytesRead === 0) break;
      hash.update(chunk.subarray(0, bytesRead));
      total += bytesRead;
    }
    if (total !== bytes) throw corrupt(place, 'size');
    return hash.digest('hex');
  });
}

/**
 * The digests of a sealed checkpoint's files. They are computed after the commit, and the manifest never changes, so they have
 * a file of their own, `digests.json`.
 *
 * The file is one checksummed record: the digests in the order of the manifest's entries (null for an entry that is not a file),
 * and the sha256 of the manifest that they belong to.
 */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import type { ManifestEntry } from '@torpor/engine';
import { forEachBounded, type GiveWay, syncDirectory } from '@torpor/host';
import { checksummedRecord, unwrapChecksummed } from '@torpor/layers';
import { TorporError } from '@torpor/protocol';
import type { ContentNode } from './content-tree.ts';
import { writeSynced } from './durable.ts';
import { parse, readLimited, refuseOtherVersions } from './record-file.ts';
import { corrupt, mapReadErrors, mapWriteErrors, type Place } from './storage-error.ts';
import { READ_PLAIN, type StoreFs, withFile } from './store-fs.ts';

const DIGESTS = 'digests.json';
/** Hashing runs on the main thread, about a millisecond for each chunk. Other requests are served between two chunks. */
const CHUNK_BYTES = 1024 * 1024;
const FILES_AT_ONCE = 4;
/** Upper bounds for one digest in the file, and for everything else in the file. */
const LIMIT_PER_ENTRY = 80;
const LIMIT_BESIDES = 4096;

type Digest = string | null;

/** Reads every file once. Resolves to the digests by path. A file with another length than its recorded size is corrupt. */
export async function digestContent(
  fs: StoreFs,
  nodes: readonly ContentNode[],
  place: Place,
  signal?: AbortSignal,
  giveWay?: GiveWay,
): Promise<Map<string, string>> {
  const digests = new Map<string, string>();
  await forEachBounded(
    nodes,
    FILES_AT_ONCE,
    async ({ entry, path }) => {
      if (entry.type !== 'file') return;
      const at = { ...place, entry: entry.path };
      const digest = () => digestFile(fs, path, entry.bytes, at, signal, giveWay);
      digests.set(entry.path, await mapReadErrors(at, digest));
    },
    signal,
  );
  return digests;
}

/** The digests that an earlier verification recorded. Undefined when there was none. */
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
  const json = unwrapChecksummed(text);
  if (json === undefined) throw corrupt(at, 'record');
  const record = parse(json, at);
  refuseOtherVersions(record, at);
  const digests = record['digests'];
  // The checksum of a digests file that was copied from another checkpoint matches too.
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
  const text = checksummedRecord({ version: 1, manifest: manifestSha256, digests });
  await mapWriteErrors({ ...place, record: DIGESTS }, path, async () => {
    await writeSynced(fs, `${path}.tmp`, text);
    await fs.rename(`${path}.tmp`, path);
    await syncDirectory(directory, fs);
  });
}

/**
 * Compares the digests of the files that were read with the recorded digests. A file that was not read keeps its recorded
 * digest. A file that was read for the first time gets one. Entries that are not files have none.
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
  giveWay: GiveWay | undefined,
): Promise<string> {
  return withFile(fs, path, READ_PLAIN, async (file) => {
    const hash = createHash('sha256');
    const chunk = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, bytes + 1));
    let total = 0;
    for (;;) {
      signal?.throwIfAborted();
      await giveWay?.();
      const { bytesRead } = await file.read(chunk, 0, chunk.length, null);
      if (bytesRead === 0) break;
      hash.update(chunk.subarray(0, bytesRead));
      total += bytesRead;
    }
    if (total !== bytes) throw corrupt(place, 'size');
    return hash.digest('hex');
  });
}

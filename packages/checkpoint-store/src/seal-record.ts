/**
 * The manifest on disk, and the seal record that says which bytes it must have.
 *
 * A manifest is believed only when its size and sha256 are those in `seal.json`, so that one that is torn
 * or edited is found out instead of followed.
 */
import { join } from 'node:path';
import type { Manifest } from '@torpor/engine';
import type { CheckpointId } from '@torpor/protocol';
import { writeSynced } from './durable.ts';
import { parse, readLimited, refuseOtherVersions, sha256Of } from './record.ts';
import { corrupt, type Place, writing } from './storage-error.ts';
import type { StoreFs } from './store-fs.ts';

const MANIFEST = 'manifest.json';
const SEAL = 'seal.json';
/** Far more than a seal record needs; a larger file there is not one. */
const SEAL_LIMIT = 4096;

export interface SealedManifest {
  readonly manifest: Manifest;
  /** Of the manifest's bytes: what the digests file refers to. */
  readonly sha256: string;
}

/** Writes both, the seal record last. The directory they are in is still to be synced. */
export async function writeSealed(
  fs: StoreFs,
  directory: string,
  manifest: Manifest,
  place: Place,
): Promise<SealedManifest> {
  const text = `${JSON.stringify(manifest)}\n`;
  const sha256 = sha256Of(text);
  const seal = { version: 1, manifest: { bytes: Buffer.byteLength(text), sha256 } };
  await write(fs, directory, MANIFEST, text, place);
  await write(fs, directory, SEAL, `${JSON.stringify(seal)}\n`, place);
  // As it will be read: JSON drops and changes some values that a caller may have put into `needs`.
  return { manifest: JSON.parse(text), sha256 };
}

export async function readSealed(
  fs: StoreFs,
  directory: string,
  id: CheckpointId,
  place: Place,
): Promise<SealedManifest> {
  const sealPlace = { ...place, record: SEAL };
  const seal = sealOf(await readLimited(fs, join(directory, SEAL), SEAL_LIMIT, sealPlace), sealPlace);

  const manifestPlace = { ...place, record: MANIFEST };
  const text = await readLimited(fs, join(directory, MANIFEST), seal.bytes, manifestPlace);
  if (text.length !== seal.bytes || sha256Of(text) !== seal.sha256) throw corrupt(manifestPlace, 'record');

  const manifest = parse(text, manifestPlace);
  refuseOtherVersions(manifest, manifestPlace);
  // A whole directory that was moved to another id has a seal that fits.
  if (manifest['checkpointId'] !== id || !Array.isArray(manifest['entries'])) {
    throw corrupt(manifestPlace, 'record');
  }
  return { manifest: manifest as unknown as Manifest, sha256: seal.sha256 };
}

function sealOf(text: Buffer, place: Place): { readonly bytes: number; readonly sha256: string } {
  const record = parse(text, place);
  refuseOtherVersions(record, place);
  const manifest = record['manifest'] as { bytes?: unknown; sha256?: unknown } | null | undefined;
  const bytes = manifest?.bytes;
  const sha256 = manifest?.sha256;
  if (typeof bytes !== 'number' || typeof sha256 !== 'string') throw corrupt(place, 'record');
  return { bytes, sha256 };
}

function write(fs: StoreFs, directory: string, record: string, text: string, place: Place): Promise<void> {
  const path = join(directory, record);
  return writing({ ...place, record }, path, () => writeSynced(fs, path, text));
}

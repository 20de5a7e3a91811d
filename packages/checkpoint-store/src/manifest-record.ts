/**
 * The manifest of a sealed checkpoint on disk, and the records of its parts.
 *
 * ```
 * manifest.json   one checksummed record (see `checksummedRecord` of @torpor/layers), accepted only if its checksum matches
 * parts.jsonl     one checksummed record for each part: the manifest's data about that part and about the checkpoint
 * ```
 *
 * The part records together have everything that the manifest has, so that a damaged manifest can be rebuilt byte for byte.
 * Checkpoints of version 1 have no `parts.jsonl`; the size and sha256 of their manifest are in `seal.json`.
 */
import { join } from 'node:path';
import { type ContentPart, type Manifest, type ManifestEntry, partsOfContent } from '@torpor/engine';
import { allDone, sha256Of, syncDirectory } from '@torpor/host';
import { checksummedJson, layerReferenceSchema, unwrapChecksummed } from '@torpor/layers';
import { type CheckpointId, isId, TorporError } from '@torpor/protocol';
import { z } from 'zod';
import { writeSynced } from './durable.ts';
import { parse, readLimited, refuseOtherVersions } from './record-file.ts';
import { corrupt, mapWriteErrors, type Place } from './storage-error.ts';
import type { StoreFs } from './store-fs.ts';

const MANIFEST = 'manifest.json';
const PARTS = 'parts.jsonl';
const SEAL_OF_VERSION_1 = 'seal.json';
/** Millions of entries; a larger file would not fit into one string. */
const MANIFEST_LIMIT = 400 * 1024 * 1024;
/** A seal record of version 1 is far smaller. A larger file is not a seal record. */
const SEAL_LIMIT = 4096;

export interface StoredManifest {
  readonly manifest: Manifest;
  /** The sha256 of the manifest's JSON. The digests file refers to it. */
  readonly sha256: string;
}

/** Writes the part records and the manifest. The caller syncs the directory. */
export async function writeManifest(
  fs: StoreFs,
  directory: string,
  manifest: Manifest,
  place: Place,
): Promise<StoredManifest> {
  const json = JSON.stringify(manifest);
  // The manifest as a later read returns it: JSON drops and changes some values that a caller may have put into `needs`.
  const written = parseOwn(json);
  await allDone(
    write(fs, directory, PARTS, partRecords(written), place),
    write(fs, directory, MANIFEST, checksummedJson(json), place),
  );
  return { manifest: written, sha256: sha256Of(json) };
}

export async function readManifest(
  fs: StoreFs,
  directory: string,
  id: CheckpointId,
  place: Place,
): Promise<StoredManifest> {
  const at = { ...place, record: MANIFEST };
  const text = await readLimited(fs, join(directory, MANIFEST), MANIFEST_LIMIT, at);
  const json = unwrapChecksummed(text.toString());
  if (json === undefined) return readVersion1(fs, directory, id, text, place);
  const record = parse(json, at);
  refuseOtherVersions(record, at, 2);
  const manifest = manifestOf(record, id);
  if (manifest === undefined) throw corrupt(at, 'record');
  return { manifest, sha256: sha256Of(json) };
}

/** Rebuilds a damaged manifest and makes it durable. Throws `damage` when a part record is missing or damaged. */
export async function rebuildManifest(
  fs: StoreFs,
  directory: string,
  id: CheckpointId,
  place: Place,
  damage: unknown,
): Promise<StoredManifest> {
  const at = { ...place, record: PARTS };
  const text = await readLimited(fs, join(directory, PARTS), MANIFEST_LIMIT, at).catch(() => {
    throw damage;
  });
  const manifest = manifestFromParts(text.toString(), id);
  if (manifest === undefined) throw damage;
  const json = JSON.stringify(manifest);
  const path = join(directory, MANIFEST);
  await mapWriteErrors({ ...place, record: MANIFEST }, path, async () => {
    await writeSynced(fs, `${path}.tmp`, checksummedJson(json));
    await fs.rename(`${path}.tmp`, path);
    await syncDirectory(directory, fs);
  });
  return { manifest, sha256: sha256Of(json) };
}

const entrySchema = z.object({
  path: z.string(),
  type: z.enum(['file', 'directory', 'symlink', 'other']),
  bytes: z.number(),
  target: z.string().optional(),
});

const partSchema = z.object({
  name: z.enum(['memory', 'secrets', 'workspace', 'layers']),
  encoding: z.enum(['whole', 'packed']),
  top: z.array(z.string()),
  layers: z.array(layerReferenceSchema),
});

const aboutSchema = z.object({
  version: z.union([z.literal(1), z.literal(2)]),
  checkpointId: z.custom<CheckpointId>((id) => isId('ckpt', String(id))),
  sandboxId: z.custom<Manifest['sandboxId']>((id) => id === null || typeof id === 'string'),
  parentId: z.custom<Manifest['parentId']>((id) => id === null || typeof id === 'string'),
  runtime: z.string(),
  createdAt: z.number(),
  parts: z.object({ files: z.boolean(), memory: z.boolean() }),
  needs: z.record(z.string(), z.unknown()),
});

/** The record of one part. `contents` lists all parts, so that a missing record is noticed. */
const partRecordSchema = z.object({
  about: aboutSchema,
  contents: z.array(partSchema),
  name: z.string(),
  entries: z.array(entrySchema),
});

/**
 * Undefined unless the record is a manifest of this checkpoint: in a directory that was moved to another id, the checksum of
 * the manifest still matches. Entries are not checked one by one, because there may be very many of them.
 */
function manifestOf(record: Record<string, unknown>, id: CheckpointId): Manifest | undefined {
  const about = aboutSchema.safeParse(record);
  const contents = z.array(partSchema).safeParse(record['contents']);
  const { entries } = record;
  if (!about.success || !contents.success || !Array.isArray(entries)) return undefined;
  if (about.data.checkpointId !== id) return undefined;
  return { ...about.data, contents: contents.data, entries: entries as ManifestEntry[] };
}

/** Parses JSON that this process has just written. */
function parseOwn(json: string): Manifest {
  return JSON.parse(json) as Manifest;
}

function partRecords({ contents, entries, ...about }: Manifest): string {
  return contents
    .map(({ name, top }) => {
      const names = new Set(top);
      const own = entries.filter(({ path }) => names.has(path.split('/', 1)[0] ?? ''));
      return checksummedJson(JSON.stringify({ about, contents, name, entries: own }));
    })
    .join('');
}

function manifestFromParts(text: string, id: CheckpointId): Manifest | undefined {
  const lines = text.split('\n');
  const records: z.infer<typeof partRecordSchema>[] = [];
  for (let at = 0; at + 1 < lines.length; at += 2) {
    const json = unwrapChecksummed(`${lines[at]}\n${lines[at + 1]}\n`);
    const record = json === undefined ? undefined : partRecordSchema.safeParse(JSON.parse(json));
    if (record?.success !== true) return undefined;
    records.push(record.data);
  }
  const [first] = records;
  if (first === undefined || first.about.checkpointId !== id) return undefined;
  const isWhole =
    first.contents.map(({ name }) => name).join() === records.map(({ name }) => name).join() &&
    records.every(
      (one) => JSON.stringify([one.about, one.contents]) === JSON.stringify([first.about, first.contents]),
    );
  if (!isWhole) return undefined;
  const entries = records.flatMap((record) => record.entries).map(withoutUndefined);
  entries.sort((a, b) => (a.path < b.path ? -1 : 1));
  return { ...first.about, contents: first.contents, entries };
}

function withoutUndefined({ target, ...entry }: z.infer<typeof entrySchema>): ManifestEntry {
  return target === undefined ? entry : { ...entry, target };
}

async function readVersion1(
  fs: StoreFs,
  directory: string,
  id: CheckpointId,
  text: Buffer,
  place: Place,
): Promise<StoredManifest> {
  const at = { ...place, record: MANIFEST };
  const sealAt = { ...place, record: SEAL_OF_VERSION_1 };
  const sealText = await readLimited(fs, join(directory, SEAL_OF_VERSION_1), SEAL_LIMIT, sealAt).catch(
    (thrown: unknown) => {
      // A checkpoint of version 2 has no `seal.json`: its manifest is damaged.
      if (thrown instanceof TorporError && thrown.code === 'checkpoint_missing') throw corrupt(at, 'record');
      throw thrown;
    },
  );
  const seal = sealOf(sealText, sealAt);
  if (text.length !== seal.bytes || sha256Of(text) !== seal.sha256) throw corrupt(at, 'record');
  const record = parse(text, at);
  refuseOtherVersions(record, at);
  const manifest = manifestOf({ ...record, contents: contentsOfVersion1(record) }, id);
  if (manifest === undefined) throw corrupt(at, 'record');
  return { manifest, sha256: seal.sha256 };
}

/** Version 1 manifests have no `contents`. The gVisor runtime put its layers into `needs`, and the entry names are its own. */
function contentsOfVersion1({ needs, entries }: Record<string, unknown>): readonly ContentPart[] {
  const found = z.object({ layers: z.array(layerReferenceSchema) }).safeParse(needs);
  const paths = z.array(z.object({ path: z.string() })).safeParse(entries);
  const top = paths.success ? paths.data.map(({ path }) => path).filter((path) => !path.includes('/')) : [];
  if (!found.success) return partsOfContent([], top);
  const has = (name: string) => top.filter((one) => one === name);
  const named: readonly ContentPart[] = [
    { name: 'memory', encoding: 'packed', top: has('memory'), layers: [] },
    { name: 'secrets', encoding: 'whole', top: has('secrets.json'), layers: [] },
    { name: 'layers', encoding: 'whole', top: has('layers.json'), layers: found.data.layers },
  ];
  return partsOfContent(
    named.filter((part) => part.top.length > 0 || part.layers.length > 0),
    top,
  );
}

function sealOf(text: Buffer, place: Place): { readonly bytes: number; readonly sha256: string } {
  const record = parse(text, place);
  refuseOtherVersions(record, place);
  const seal = z.object({ manifest: z.object({ bytes: z.number(), sha256: z.string() }) }).safeParse(record);
  if (!seal.success) throw corrupt(place, 'record');
  return seal.data.manifest;
}

function write(fs: StoreFs, directory: string, record: string, text: string, place: Place): Promise<void> {
  const path = join(directory, record);
  return mapWriteErrors({ ...place, record }, path, () => writeSynced(fs, path, text));
}

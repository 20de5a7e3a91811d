/**
 * Copies of checkpoints, layers and programs outside their store, for backups.
 *
 * ```
 * <backup>/sealed/<id>/…         a copy of the sealed checkpoint, with the digest of every file
 * <backup>/references/<id>.json  its claim
 * <backup>/layers/<id>.tar       a packed layer
 * <backup>/programs/<kind>/…     a copy of each program that the memory of a checkpoint needs
 * ```
 *
 * A checkpoint is a copy and not a tar archive, because tar leaves sockets out, and a workspace may have some.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { copyFile, lstat, mkdir, open, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import type { CheckpointStore, LayerReference, Manifest } from '@torpor/engine';
import { isMissing, ProgramFailure, programOutput } from '@torpor/host';
import type { LayerId, Layers, ProgramId } from '@torpor/layers';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { programsOf } from './claimed-programs.ts';
import { type LayeredCheckpointStore, openDirectoryStore } from './directory-store.ts';

/** The size and digest of a file in a backup. */
export interface SavedFile {
  readonly bytes: number;
  readonly sha256: string;
}

/** A store and its directory. */
export interface StoreAt {
  readonly root: string;
  readonly store: LayeredCheckpointStore;
}

export async function storeAt(root: string): Promise<StoreAt> {
  return { root, store: await openDirectoryStore({ root }) };
}

/** On Linux a copy shares its blocks with the original where the file system can. */
const COPY = process.platform === 'linux' ? ['-a', '--reflink=auto'] : ['-pR'];

/** Copies a file or a directory with everything in it: owners, times, sockets and holes too. `to` must not exist. */
export async function copyTree(from: string, to: string, signal?: AbortSignal): Promise<void> {
  await programOutput('cp', [...COPY, '--', from, to], { signal }).catch((thrown: unknown) => {
    if (!(thrown instanceof ProgramFailure && thrown.stderr.includes('No space left'))) throw thrown;
    throw new TorporError('storage_full', `There is no room left for ${to}.`, {
      details: { path: to },
      cause: thrown,
    });
  });
}

/**
 * Copies a sealed checkpoint with its claim from one store root to another and reads the whole copy. The first copy of a
 * checkpoint that was never verified records the digests; each later copy is compared with them. Resolves to the layers and
 * programs that the checkpoint needs, which are not copied.
 */
export async function copyCheckpoint(
  id: CheckpointId,
  from: StoreAt,
  to: StoreAt,
  signal?: AbortSignal,
): Promise<{ readonly layers: readonly LayerReference[]; readonly programs: readonly ProgramId[] }> {
  const copy = join(to.root, 'sealed', id);
  await from.store.read(id, signal);
  // An earlier attempt may have left an unfinished copy.
  await rm(copy, { recursive: true, force: true });
  await copySealed(join(from.root, 'sealed', id), copy, signal).catch(async (thrown: unknown) => {
    // When the checkpoint is damaged, `inspect` throws the more precise error.
    if (thrown instanceof ProgramFailure || isMissing(thrown)) await from.store.inspect(id, signal);
    throw thrown;
  });
  await copyClaim(id, from.root, to.root);
  const manifest = await verifyContent(to.store, id, signal);
  return { layers: manifest.contents.flatMap((part) => part.layers), programs: programsOf(manifest) };
}

/** Copies a program from one store to another, reads the whole copy and resolves to its size. May be repeated. */
export async function copyProgram(
  program: ProgramId,
  from: StoreAt,
  to: StoreAt,
  signal?: AbortSignal,
): Promise<number> {
  const [source, target] = [from.store.layerStore.programs, to.store.layerStore.programs];
  // Before the copy, because a missing or damaged program is a fault of the source.
  await source.verify(program);
  await target.add(program, async (directory) => {
    await copyTree(`${source.path(program)}/.`, directory, signal);
  });
  const entries = await readdir(target.path(program), { recursive: true, withFileTypes: true });
  const sizes = entries.map((entry) => lstat(join(entry.parentPath, entry.name)));
  return (await Promise.all(sizes)).reduce((sum, { size }) => sum + size, 0);
}

/** Entry by entry: a server that verifies the checkpoint meanwhile writes temporary files beside its records. */
async function copySealed(from: string, to: string, signal?: AbortSignal): Promise<void> {
  await mkdir(to, { mode: 0o700 });
  await copyTree(join(from, 'content'), join(to, 'content'), signal);
  for (const name of ['manifest.json', 'parts.jsonl', 'digests.json']) {
    await copyFile(join(from, name), join(to, name)).catch((thrown: unknown) => {
      // Checkpoints of earlier versions have no records of parts, and digests come with the first verification.
      if (!isMissing(thrown) || name === 'manifest.json') throw thrown;
    });
  }
}

async function copyClaim(id: CheckpointId, from: string, to: string): Promise<void> {
  const claim = join('references', `${id}.json`);
  await copyFile(join(from, claim), join(to, claim)).catch((thrown: unknown) => {
    // A checkpoint without layers has no claim.
    if (!isMissing(thrown)) throw thrown;
  });
}

/** Verifies the content directory but no layers, because the layers of a backup are packed. */
async function verifyContent(
  store: CheckpointStore,
  id: CheckpointId,
  signal?: AbortSignal,
): Promise<Manifest> {
  const { contents } = await store.read(id, signal);
  const names = contents.flatMap((part) => part.top);
  return (await store.verify(id, signal, { how: 'only', names, layers: 'none' })).manifest;
}

/** Packs a layer into a backup. Verifies the layer first. */
export async function packLayer(
  layers: Layers,
  id: LayerId,
  backup: string,
  signal?: AbortSignal,
): Promise<SavedFile> {
  await layers.verify(id, signal, 'compare');
  await mkdir(join(backup, 'layers'), { recursive: true, mode: 0o700 });
  const hash = createHash('sha256');
  let bytes = 0;
  const file = await open(packedPath(backup, id), 'w', 0o600);
  try {
    for await (const chunk of layers.pack(id, signal) as AsyncIterable<Buffer>) {
      hash.update(chunk);
      bytes += chunk.length;
      await file.writeFile(chunk);
    }
    await file.sync();
  } finally {
    await file.close();
  }
  return { bytes, sha256: hash.digest('hex') };
}

/** Unpacks a layer of a backup, unless the store has the layer. Throws when the packed file has another size or digest. */
export async function unpackLayer(
  layers: Layers,
  id: LayerId,
  backup: string,
  saved: SavedFile,
  signal?: AbortSignal,
): Promise<void> {
  const packed = Readable.from(checkedContent(packedPath(backup, id), saved), { objectMode: false });
  await layers.unpack(id, packed, signal);
}

/** The content of a file. Throws at the end when size or digest differ from `saved`, so that the reader fails. */
async function* checkedContent(path: string, saved: SavedFile): AsyncGenerator<Buffer> {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const chunk of createReadStream(path) as AsyncIterable<Buffer>) {
    hash.update(chunk);
    bytes += chunk.length;
    yield chunk;
  }
  if (bytes !== saved.bytes || hash.digest('hex') !== saved.sha256) throw notAsSaved(path);
}

/** Size and digest of a file. */
export async function digestOf(path: string): Promise<SavedFile> {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const chunk of createReadStream(path) as AsyncIterable<Buffer>) {
    hash.update(chunk);
    bytes += chunk.length;
  }
  return { bytes, sha256: hash.digest('hex') };
}

export function notAsSaved(path: string): TorporError {
  return new TorporError('checkpoint_corrupt', `${path} is not what was saved in the backup.`, {
    hint: 'The backup is damaged. Use another one.',
    details: { path },
  });
}

function packedPath(backup: string, id: LayerId): string {
  return join(backup, 'layers', `${id}.tar`);
}

/**
 * A checkpoint store in a local directory.
 *
 * ```
 * <root>/staging/<id>/content/…     the runtime fills it (Staging.path)
 * <root>/sealed/<id>/content/…      the same directory after the rename that seals
 *                    manifest.json  what is in the checkpoint; never changes
 *                    parts.jsonl    the same as one record for each part; a damaged manifest is rebuilt from it
 *                    digests.json   sha256 of every file, once `verify` has run
 * <root>/removing/<id>/             a checkpoint that is being deleted: moved away in one step, then deleted piece by piece
 * <root>/layers/lay_…/              layers, which checkpoints share
 * <root>/programs/<kind>/<digest>/  programs that memory images need
 * <root>/references/<id>.json       the claim of a checkpoint: the layers and programs that it needs (`references` is a
 *                                   name of the format)
 * <root>/holds/                     one file for each backup that is under way
 * ```
 *
 * Content has a directory of its own, so that no name in it can collide with a name of the store. All directories must be on
 * one file system: a rename moves a checkpoint from one directory to the next, so it is always in exactly one. One process at a
 * time may work on a root.
 */
import { randomBytes } from 'node:crypto';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import {
  type CheckpointStore,
  type ContentPart,
  type ContentSelection,
  isSelected,
  type LocalCopies,
  type Manifest,
  type ManifestDraft,
  partsOfContent,
  type Staging,
  type StoredCheckpoint,
  type StoredSeal,
  selectsLayersOf,
  systemClock,
  type Verified,
} from '@torpor/engine';
import {
  allDone,
  errnoOf,
  exists,
  type GiveWay,
  isMissing,
  KeyedMutex,
  removeTree,
  syncDirectory,
} from '@torpor/host';
import {
  LayerClaims,
  type LayerId,
  type LayerStore,
  type Layers,
  openOverlayLayers,
  PROGRAM_KINDS,
} from '@torpor/layers';
import { type CheckpointId, isId, TorporError } from '@torpor/protocol';
import { claimedPrograms } from './claimed-programs.ts';
import { checkContent } from './content-check.ts';
import { allocatedBytes, type ContentNode, listContent, syncContent } from './content-tree.ts';
import { digestContent, mergeDigests, readDigests, recordDigests } from './digests.ts';
import { makeDirectory } from './durable.ts';
import { KnownSizes } from './known-sizes.ts';
import { LayerRetention } from './layer-retention.ts';
import { readManifest, rebuildManifest, type StoredManifest, writeManifest } from './manifest-record.ts';
import { DirectoryPrograms } from './programs.ts';
import { putInPlace } from './put-in-place.ts';
import { mapReadErrors, mapWriteErrors, missing, type Place, unreadable } from './storage-error.ts';
import { realFs, type StoreFs } from './store-fs.ts';
import { currentHold } from './store-hold.ts';

/** In the order in which a checkpoint passes through them. */
const STAGES = ['staging', 'sealed', 'removing'] as const;
type Stage = (typeof STAGES)[number];

const STATES = { staging: 'staged', sealed: 'sealed', removing: 'removing' } as const;

/** The other directories of the store. */
const LAYERS = 'layers';
const REFERENCES = 'references';
const PROGRAMS = 'programs';

/** A checkpoint store whose layers a runtime can mount. */
export interface LayeredCheckpointStore extends CheckpointStore {
  readonly layerStore: LayerStore;
  /**
   * Puts parts of a sealed checkpoint back that were lost or damaged. `write` fills an empty directory with entries of the
   * content directory, or with records of the store. Each entry takes the place of the one with its name. Nothing changes when
   * `write` fails.
   */
  putBack(
    id: CheckpointId,
    what: 'content' | 'records',
    write: (directory: string) => Promise<void>,
  ): Promise<void>;
}

/** Opens the store at `root`. Creates the directories that do not exist. */
export async function openDirectoryStore(options: {
  readonly root: string;
  readonly fs?: StoreFs;
}): Promise<LayeredCheckpointStore> {
  const root = resolve(options.root);
  const fs = options.fs ?? realFs;
  const [layersRoot, references] = [join(root, LAYERS), join(root, REFERENCES)];
  await mapWriteErrors({ location: pathToFileURL(root).href }, root, async () => {
    await makeDirectory(fs, root);
    const programs = PROGRAM_KINDS.map((kind) => join(PROGRAMS, kind));
    for (const name of [...STAGES, LAYERS, REFERENCES, ...programs]) {
      await fs.mkdir(join(root, name), { recursive: true, mode: 0o700 });
    }
    await syncDirectory(join(root, PROGRAMS), fs);
    await syncDirectory(root, fs);
  });
  const layers = await openOverlayLayers({ root: layersRoot, clock: systemClock, randomBytes });
  const claims = await LayerClaims.open(references);
  return new DirectoryStore(root, fs, claims, layers);
}

class DirectoryStore implements LayeredCheckpointStore {
  readonly #layerStore: LayerRetention;
  readonly #root: string;
  readonly #fs: StoreFs;
  readonly #claims: LayerClaims;
  readonly #changes = new KeyedMutex<CheckpointId>();
  /** Separate from `#changes`, so that a removal does not wait for a verification that reads gigabytes. */
  readonly #verifications = new KeyedMutex<CheckpointId>();
  readonly #sizes = new KnownSizes();

  constructor(root: string, fs: StoreFs, claims: LayerClaims, layers: Layers) {
    this.#root = root;
    this.#fs = fs;
    this.#claims = claims;
    const layersOfCheckpointsWithoutClaim = () => this.#layersOfCheckpointsWithoutClaim();
    this.#layerStore = new LayerRetention({
      layers,
      claims,
      programs: new DirectoryPrograms(join(root, PROGRAMS), (kind) => claimedPrograms(this, claims, kind)),
      layersOfCheckpointsWithoutClaim,
    });
  }

  get layerStore(): LayerStore {
    return this.#layerStore;
  }

  stage(id: CheckpointId, signal?: AbortSignal): Promise<Staging> {
    return this.#exclusively(id, async (place) => {
      const directory = this.#pathOf('staging', id);
      const path = join(directory, 'content');
      return mapWriteErrors(place, directory, async () => {
        signal?.throwIfAborted();
        if (await this.#exists(this.#pathOf('sealed', id))) throw conflict(place, 'is sealed already');
        await removeTree(directory, this.#fs);
        signal?.throwIfAborted();
        await this.#fs.mkdir(directory, { mode: 0o700 });
        await this.#fs.mkdir(path, { mode: 0o700 });
        return { checkpointId: id, path };
      });
    });
  }

  seal(staging: Staging, manifest: ManifestDraft, signal?: AbortSignal): Promise<StoredSeal> {
    const id = staging.checkpointId;
    return this.#exclusively(id, async (place) => {
      signal?.throwIfAborted();
      if (manifest.checkpointId !== id) {
        throw new TorporError('invalid_request', `This manifest is not of ${id}.`, { checkpointId: id });
      }
      const sealed = this.#pathOf('sealed', id);
      if (await mapWriteErrors(place, sealed, () => this.#exists(sealed)))
        return this.#resealExisting(id, place);
      return this.#sealStaged(id, place, manifest, signal);
    });
  }

  async read(id: CheckpointId, signal?: AbortSignal): Promise<Manifest> {
    signal?.throwIfAborted();
    return this.#unreadableWhenStoreIsMissing(id, async () => (await this.#readManifest(id)).manifest);
  }

  async inspect(id: CheckpointId, signal?: AbortSignal, selection?: ContentSelection): Promise<Manifest> {
    return this.#unreadableWhenStoreIsMissing(
      id,
      async () => (await this.#inspect(id, signal, selection)).manifest,
    );
  }

  verify(
    id: CheckpointId,
    signal?: AbortSignal,
    selection?: ContentSelection,
    giveWay?: GiveWay,
  ): Promise<Verified> {
    return this.#verifications.run(id, () =>
      this.#unreadableWhenStoreIsMissing(id, () => this.#verify(id, signal, selection, giveWay)),
    );
  }

  rebuild(id: CheckpointId, signal?: AbortSignal): Promise<Manifest> {
    return this.#exclusively(id, (place) =>
      this.#unreadableWhenStoreIsMissing(id, async () => {
        signal?.throwIfAborted();
        const sealed = await this.#readManifest(id).catch((damage: unknown) => {
          if (!isOfManifest(damage)) throw damage;
          return rebuildManifest(this.#fs, this.#pathOf('sealed', id), id, place, damage);
        });
        return sealed.manifest;
      }),
    );
  }

  location(id: CheckpointId): string {
    return pathToFileURL(this.#pathOf('sealed', id)).href;
  }

  path(id: CheckpointId): string {
    return join(this.#pathOf('sealed', id), 'content');
  }

  remove(id: CheckpointId): Promise<void> {
    return this.#exclusively(id, async (place) => {
      const removing = this.#pathOf('removing', id);
      await this.#refuseWhileHeld(id, place);
      await mapWriteErrors(place, removing, () => removeTree(removing, this.#fs));
      for (const stage of ['sealed', 'staging'] as const) {
        const directory = this.#pathOf(stage, id);
        await mapWriteErrors(place, directory, async () => {
          if (!(await this.#exists(directory))) return;
          await this.#fs.rename(directory, removing);
          await syncDirectory(join(this.#root, 'removing'), this.#fs);
          await syncDirectory(join(this.#root, stage), this.#fs);
          await removeTree(removing, this.#fs);
        });
      }
      await mapWriteErrors(place, removing, () => syncDirectory(join(this.#root, 'removing'), this.#fs));
      await this.#layerStore.removeClaim(id);
    });
  }

  putBack(
    id: CheckpointId,
    what: 'content' | 'records',
    write: (directory: string) => Promise<void>,
  ): Promise<void> {
    return this.#exclusively(id, async (place) => {
      const sealed = this.#pathOf('sealed', id);
      const target = what === 'content' ? join(sealed, 'content') : sealed;
      const work = join(this.#root, 'staging', `fetched-${id}`);
      try {
        await mapWriteErrors(place, target, () => putInPlace(this.#fs, { work, target, sealed }, write));
      } finally {
        // It may have been measured while a part of it was missing.
        this.#sizes.forget(id);
      }
    });
  }

  async #refuseWhileHeld(id: CheckpointId, place: Place): Promise<void> {
    const sealed = this.#pathOf('sealed', id);
    if (!(await mapWriteErrors(place, sealed, () => this.#exists(sealed)))) return;
    const hold = await currentHold(this.#root);
    if (hold === undefined) return;
    throw new TorporError('transitioning', `Checkpoint ${id} is not removed while a backup is taken.`, {
      checkpointId: id,
      details: { location: place.location, hold },
    });
  }

  async *list(): AsyncGenerator<StoredCheckpoint> {
    // A claim without a directory is an unfinished removal.
    const claimed = new Set(this.#claims.ids());
    for (const stage of STAGES) {
      const names = await this.#mapStoreErrors(() =>
        this.#fs.readdir(join(this.#root, stage), { encoding: 'buffer' }),
      );
      for (const name of names) {
        const id = name.toString();
        if (!isId('ckpt', id)) continue;
        claimed.delete(id);
        yield { id, state: STATES[stage] };
      }
    }
    for (const id of claimed) yield { id, state: 'removing' };
  }

  async usage(): Promise<{ freeBytes: number; totalBytes: number }> {
    const { bavail, blocks, bsize } = await this.#mapStoreErrors(() => this.#fs.statfs(this.#root));
    return { freeBytes: bavail * bsize, totalBytes: blocks * bsize };
  }

  async copies(signal?: AbortSignal): Promise<LocalCopies> {
    const sealed: CheckpointId[] = [];
    const leftovers = new Set<CheckpointId>();
    for await (const { id, state } of this.list()) {
      if (state === 'sealed') sealed.push(id);
      if (state === 'removing') leftovers.add(id);
    }
    let bytes = 0;
    for (const id of sealed) bytes += await this.#sizes.of(id, () => this.#measureContent(id, signal));
    const { layers } = this.layerStore;
    const sealedLayers: LayerId[] = [];
    for await (const { id, state } of layers.list()) if (state === 'sealed') sealedLayers.push(id);
    for (const id of sealedLayers) {
      signal?.throwIfAborted();
      bytes += await this.#sizes.of(id, async () => (await layers.inspect(id)).bytes);
    }
    this.#sizes.keepOnly([...sealed, ...sealedLayers]);
    return { bytes, sealed, leftovers: [...leftovers] };
  }

  async #measureContent(id: CheckpointId, signal: AbortSignal | undefined): Promise<number> {
    return allocatedBytes(await listContent(this.#fs, this.path(id), this.#place(id), signal));
  }

  has(id: CheckpointId): Promise<boolean> {
    return mapReadErrors(this.#place(id), () => this.#exists(this.#pathOf('sealed', id)));
  }

  async lastUse(id: CheckpointId): Promise<number> {
    const found = await mapReadErrors(this.#place(id), () =>
      ifThere(this.#fs.lstat(this.#pathOf('sealed', id), { bigint: true })),
    );
    return found === undefined ? 0 : Number(found.mtimeMs);
  }

  /** The mtime of the directory is not part of the checkpoint. Power loss may undo this, which does no harm. */
  async recordUse(id: CheckpointId, now: number): Promise<void> {
    const directory = this.#pathOf('sealed', id);
    await mapWriteErrors(this.#place(id), directory, () =>
      ifThere(this.#fs.utimes(directory, now / 1_000, now / 1_000)),
    );
  }

  async #sealStaged(
    id: CheckpointId,
    place: Place,
    manifest: ManifestDraft,
    signal: AbortSignal | undefined,
  ): Promise<StoredSeal> {
    const staged = this.#pathOf('staging', id);
    const content = join(staged, 'content');
    if (!(await mapWriteErrors(place, content, () => this.#exists(content))))
      throw conflict(place, 'is not staged');

    const nodes = await listContent(this.#fs, content, place, signal);
    const entries = nodes.map((node) => node.entry);
    const top = entries.map(({ path }) => path).filter((path) => !path.includes('/'));
    const contents = partsOfContent(manifest.contents ?? [], top);
    const [written] = await allDone(
      writeManifest(this.#fs, staged, manifestOf(manifest, contents, entries), place),
      syncContent(this.#fs, content, nodes, place, signal),
    );
    const bytes = allocatedBytes(nodes) + (await this.#ownPageBytes(id, contents));
    await mapWriteErrors(place, staged, async () => {
      await allDone(syncDirectory(staged, this.#fs), syncDirectory(join(this.#root, 'staging'), this.#fs));
      signal?.throwIfAborted();
      await this.#moveIntoPlace(id);
    });
    return { manifest: written.manifest, bytes };
  }

  /** The bytes of the page layers that the checkpoint brings. They were part of the content in earlier versions. */
  async #ownPageBytes(id: CheckpointId, contents: readonly ContentPart[]): Promise<number> {
    const pages = contents.flatMap(({ name, layers }) => (name === 'layers' ? [] : layers));
    const own = pages.filter(({ owner }) => owner === id);
    const seals = await Promise.all(own.map(({ id: layer }) => this.layerStore.layers.inspect(layer)));
    return seals.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** The atomic step of a seal. A failed sync undoes the rename, so that a failed seal leaves the checkpoint staged. */
  async #moveIntoPlace(id: CheckpointId): Promise<void> {
    const staged = this.#pathOf('staging', id);
    const sealed = this.#pathOf('sealed', id);
    await this.#fs.rename(staged, sealed);
    try {
      await this.#syncParents();
    } catch (error) {
      // When this fails too, `list` shows a sealed checkpoint that no row of the database names.
      await this.#fs.rename(sealed, staged).catch(() => {});
      throw error;
    }
  }

  /** Seals a sealed checkpoint again: syncs, because an earlier process may have crashed between the rename and the sync. */
  async #resealExisting(id: CheckpointId, place: Place): Promise<StoredSeal> {
    await mapWriteErrors(place, this.#pathOf('sealed', id), () => this.#syncParents());
    const { manifest, nodes } = await this.#inspect(id);
    return { manifest, bytes: allocatedBytes(nodes) + (await this.#ownPageBytes(id, manifest.contents)) };
  }

  async #syncParents(): Promise<void> {
    await allDone(
      syncDirectory(join(this.#root, 'sealed'), this.#fs),
      syncDirectory(join(this.#root, 'staging'), this.#fs),
    );
  }

  async #inspect(
    id: CheckpointId,
    signal?: AbortSignal,
    selection?: ContentSelection,
  ): Promise<StoredManifest & { readonly nodes: readonly ContentNode[] }> {
    signal?.throwIfAborted();
    const place = this.#place(id);
    const sealed = await this.#readManifest(id);
    const nodes = await listContent(this.#fs, this.path(id), place, signal, selection);
    checkContent(
      sealed.manifest.entries.filter(({ path }) => isSelected(path, selection)),
      nodes.map((node) => node.entry),
      place,
    );
    await this.#inspectLayers(id, sealed.manifest, selection);
    return { ...sealed, nodes };
  }

  async #inspectLayers(
    id: CheckpointId,
    { contents }: Manifest,
    selection: ContentSelection | undefined,
  ): Promise<void> {
    const looks = contents
      .filter((part) => selectsLayersOf(part, selection))
      .flatMap((part) =>
        part.layers.map((layer) =>
          this.layerStore.layers
            .inspect(layer.id, layer.nonce)
            .catch((thrown: unknown) => this.#withPlace(id, part, thrown)),
        ),
      );
    await Promise.all(looks);
  }

  /**
   * Verifies the layers of files that this checkpoint owns; the others are verified with the checkpoints that own them. Verifies
   * all page layers of the memory, because the checkpoint that owns one may have been deleted.
   */
  async #verifyLayers(
    id: CheckpointId,
    { contents }: Manifest,
    selection: ContentSelection | undefined,
    signal: AbortSignal | undefined,
    giveWay: GiveWay | undefined,
  ): Promise<void> {
    for (const part of contents.filter((one) => selectsLayersOf(one, selection))) {
      for (const layer of part.layers) {
        if (part.name === 'layers' && layer.owner !== id) continue;
        const verified = this.layerStore.layers.verify(layer.id, signal, 'record', giveWay);
        await verified.catch((thrown: unknown) => this.#withPlace(id, part, thrown));
      }
    }
  }

  /** For a layer that is not of files, `entry` names the part at fault, instead of the entry of the layer. */
  #withPlace(id: CheckpointId, { name, top }: ContentPart, thrown: unknown): never {
    if (!(thrown instanceof TorporError)) throw thrown;
    const location = this.location(id);
    if (name === 'layers') throw thrown.with({ checkpointId: id, details: { location } });
    const { code, message, details } = thrown.toBody();
    throw new TorporError(code, message, {
      checkpointId: id,
      details: { ...details, location, entry: top[0] },
      cause: thrown,
    });
  }

  /** The layers of sealed checkpoints that have no claim. Undefined when a manifest cannot be read. */
  async #layersOfCheckpointsWithoutClaim(): Promise<ReadonlySet<LayerId> | undefined> {
    const layers = new Set<LayerId>();
    for await (const { id, state } of this.list()) {
      if (state !== 'sealed' || this.#claims.has(id)) continue;
      const manifest = await this.read(id).catch(() => undefined);
      if (manifest === undefined) return undefined;
      for (const layer of manifest.contents.flatMap((part) => part.layers)) layers.add(layer.id);
    }
    return layers;
  }

  async #verify(
    id: CheckpointId,
    signal: AbortSignal | undefined,
    selection: ContentSelection | undefined,
    giveWay: GiveWay | undefined,
  ): Promise<Verified> {
    const place = this.#place(id);
    const directory = this.#pathOf('sealed', id);
    const { manifest, sha256, nodes } = await this.#inspect(id, signal, selection);
    const { entries } = manifest;
    const recorded = await readDigests(this.#fs, directory, { sha256, entries }, place);
    const byPath = await digestContent(this.#fs, nodes, place, signal, giveWay);
    const found = entries.map(({ path }) => byPath.get(path) ?? null);
    const merged = mergeDigests(recorded, found, entries, place);
    if (merged.isNew) await recordDigests(this.#fs, directory, sha256, merged.digests, place);
    await this.#verifyLayers(id, manifest, selection, signal, giveWay);
    const digested = nodes.reduce((sum, { entry }) => sum + entry.bytes, 0);
    const withDigests = entries.map((entry, index) => {
      const digest = found[index];
      return typeof digest === 'string' ? { ...entry, sha256: digest } : entry;
    });
    return { manifest: { ...manifest, entries: withDigests }, digested };
  }

  async #readManifest(id: CheckpointId): Promise<StoredManifest> {
    const place = this.#place(id);
    const directory = this.#pathOf('sealed', id);
    if (!(await mapReadErrors(place, () => this.#exists(directory)))) throw missing(place);
    return readManifest(this.#fs, directory, id, place);
  }

  /** Turns `checkpoint_missing` into `checkpoint_unreadable` when the store itself is missing: its disk may not be mounted. */
  async #unreadableWhenStoreIsMissing<T>(id: CheckpointId, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof TorporError) || error.code !== 'checkpoint_missing') throw error;
      const place = this.#place(id);
      if (await mapReadErrors(place, () => this.#exists(join(this.#root, 'sealed')))) throw error;
      throw unreadable(place, 'the checkpoint store is not there', error);
    }
  }

  /** Runs work that moves or writes a checkpoint: one call at a time for each checkpoint. */
  async #exclusively<T>(id: CheckpointId, work: (place: Place) => Promise<T>): Promise<T> {
    const place = this.#place(id);
    return this.#changes.run(id, () => work(place));
  }

  /** Maps the errors of a read of the whole store. A missing store proves nothing about its checkpoints. */
  async #mapStoreErrors<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      const errno = errnoOf(error);
      if (errno === undefined) throw error;
      throw unreadable({ location: pathToFileURL(this.#root).href }, errno, error);
    }
  }

  #exists(path: string): Promise<boolean> {
    return exists(path, this.#fs);
  }

  #place(id: CheckpointId): Place {
    return { checkpointId: id, location: this.location(id) };
  }

  /** The only function that turns an id into a path component; it validates the id. */
  #pathOf(stage: Stage, id: CheckpointId): string {
    if (!isId('ckpt', id)) throw new TorporError('invalid_request', 'This is not the id of a checkpoint.');
    return join(this.#root, stage, id);
  }
}

async function ifThere<T>(work: Promise<T>): Promise<T | undefined> {
  return work.catch((thrown: unknown) => {
    if (isMissing(thrown)) return undefined;
    throw thrown;
  });
}

/** In a fixed order of keys, so that a rebuilt manifest has the same bytes. */
function manifestOf(
  { checkpointId, sandboxId, parentId, runtime, createdAt, parts, needs }: ManifestDraft,
  contents: Manifest['contents'],
  entries: Manifest['entries'],
): Manifest {
  const about = { checkpointId, sandboxId, parentId, runtime, createdAt, parts, needs };
  return { version: 2, ...about, contents, entries };
}

/** Whether a failure proves damage to the manifest itself, which can be rebuilt. */
function isOfManifest(thrown: unknown): boolean {
  if (!(thrown instanceof TorporError)) return false;
  const isProof = thrown.code === 'checkpoint_missing' || thrown.code === 'checkpoint_corrupt';
  return isProof && thrown.toBody().details?.['record'] === 'manifest.json';
}

function conflict({ checkpointId, location }: Place, what: string): TorporError {
  return new TorporError('conflict', `Checkpoint ${checkpointId} ${what}.`, {
    ...(checkpointId === undefined ? {} : { checkpointId }),
    details: { location },
  });
}

/**
 * A checkpoint store in a local directory.
 *
 * ```
 * <root>/staging/<id>/content/…     the runtime fills it (Staging.path)
 * <root>/sealed/<id>/content/…      the same directory after the rename that seals
 *                    manifest.json  what is in the checkpoint; never changes
 *                    parts.jsonl    the same, part by part, from which a damaged manifest is built again
 *                    digests.json   sha256 of every file, once `verify` has run
 * <root>/removing/<id>/             a checkpoint that is being deleted: moved away in one step, then deleted piece by piece
 * <root>/layers/lay_…/              layers, which checkpoints share
 * <root>/references/<id>.json       which layers a checkpoint needs
 * <root>/holds/                     one file for each backup that is under way
 * ```
 *
 * Content has a directory of its own, so that no name in it can collide with a name of the store. All directories must be on
 * one file system: a checkpoint goes from one to the next by rename, and is always in exactly one of them. One process at a
 * time may work on a root.
 */
import { randomBytes } from 'node:crypto';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import {
  type CheckpointStore,
  type ContentSelection,
  isSelected,
  type Manifest,
  type ManifestDraft,
  partsOfContent,
  type Staging,
  type StoredCheckpoint,
  type StoredSeal,
  selectsLayers,
  systemClock,
  type Verified,
} from '@torpor/engine';
import { KeyedMutex } from '@torpor/host';
import { LayerClaims, type LayerId, type LayerStore, type Layers, openOverlayLayers } from '@torpor/layers';
import { type CheckpointId, isId, TorporError } from '@torpor/protocol';
import { checkContent } from './content-check.ts';
import { allocatedBytes, type ContentNode, listContent, syncContent } from './content-tree.ts';
import { digestContent, mergeDigests, readDigests, recordDigests } from './digests.ts';
import { makeDirectory, syncDirectory } from './durable.ts';
import { readManifest, rebuildManifest, type SealedManifest, writeManifest } from './manifest-record.ts';
import { removeTree } from './remove-tree.ts';
import { errnoOf, missing, type Place, reading, unreadable, writing } from './storage-error.ts';
import { realFs, type StoreFs } from './store-fs.ts';
import { currentHold } from './store-hold.ts';
import { StoredLayers } from './stored-layers.ts';

/** In the order in which a checkpoint passes through them. */
const STAGES = ['staging', 'sealed', 'removing'] as const;
type Stage = (typeof STAGES)[number];

const STATES = { staging: 'staged', sealed: 'sealed', removing: 'removing' } as const;

/** The other directories of the store. */
const LAYERS = 'layers';
const REFERENCES = 'references';

/** A checkpoint store whose layers a runtime can mount. */
export interface LayeredCheckpointStore extends CheckpointStore {
  readonly layerStore: LayerStore;
}

/** Opens the store at `root`. Makes the directories that do not exist. */
export async function openDirectoryStore(options: {
  readonly root: string;
  readonly fs?: StoreFs;
}): Promise<LayeredCheckpointStore> {
  const root = resolve(options.root);
  const fs = options.fs ?? realFs;
  const [layersRoot, references] = [join(root, LAYERS), join(root, REFERENCES)];
  await writing({ location: pathToFileURL(root).href }, root, async () => {
    await makeDirectory(fs, root);
    for (const name of [...STAGES, LAYERS, REFERENCES]) {
      await fs.mkdir(join(root, name), { recursive: true, mode: 0o700 });
    }
    await syncDirectory(fs, root);
  });
  const layers = await openOverlayLayers({ root: layersRoot, clock: systemClock, randomBytes });
  const claims = await LayerClaims.open(references);
  return new DirectoryStore(root, fs, claims, layers);
}

class DirectoryStore implements LayeredCheckpointStore {
  readonly #layerStore: StoredLayers;
  readonly #root: string;
  readonly #fs: StoreFs;
  readonly #claims: LayerClaims;
  readonly #changes = new KeyedMutex<CheckpointId>();
  /** Separate from the changes: a removal need not wait until gigabytes are read. */
  readonly #verifications = new KeyedMutex<CheckpointId>();

  constructor(root: string, fs: StoreFs, claims: LayerClaims, layers: Layers) {
    this.#root = root;
    this.#fs = fs;
    this.#claims = claims;
    const unclaimedLayers = () => this.#unclaimedLayers();
    this.#layerStore = new StoredLayers({ layers, claims, unclaimedLayers });
  }

  get layerStore(): LayerStore {
    return this.#layerStore;
  }

  stage(id: CheckpointId, signal?: AbortSignal): Promise<Staging> {
    return this.#change(id, async (place) => {
      const directory = this.#at('staging', id);
      const path = join(directory, 'content');
      return writing(place, directory, async () => {
        signal?.throwIfAborted();
        if (await this.#exists(this.#at('sealed', id))) throw conflict(place, 'is sealed already');
        await removeTree(this.#fs, directory);
        signal?.throwIfAborted();
        await this.#fs.mkdir(directory, { mode: 0o700 });
        await this.#fs.mkdir(path, { mode: 0o700 });
        return { checkpointId: id, path };
      });
    });
  }

  seal(staging: Staging, manifest: ManifestDraft, signal?: AbortSignal): Promise<StoredSeal> {
    const id = staging.checkpointId;
    return this.#change(id, async (place) => {
      signal?.throwIfAborted();
      if (manifest.checkpointId !== id) {
        throw new TorporError('invalid_request', `This manifest is not of ${id}.`, { checkpointId: id });
      }
      const sealed = this.#at('sealed', id);
      if (await writing(place, sealed, () => this.#exists(sealed))) return this.#sealedBefore(id, place);
      return this.#sealNow(id, place, manifest, signal);
    });
  }

  async read(id: CheckpointId, signal?: AbortSignal): Promise<Manifest> {
    signal?.throwIfAborted();
    return this.#look(id, async () => (await this.#readManifest(id)).manifest);
  }

  async inspect(id: CheckpointId, signal?: AbortSignal, selection?: ContentSelection): Promise<Manifest> {
    return this.#look(id, async () => (await this.#inspect(id, signal, selection)).manifest);
  }

  verify(id: CheckpointId, signal?: AbortSignal, selection?: ContentSelection): Promise<Verified> {
    return this.#verifications.run(id, () => this.#look(id, () => this.#verify(id, signal, selection)));
  }

  rebuild(id: CheckpointId, signal?: AbortSignal): Promise<Manifest> {
    return this.#change(id, (place) =>
      this.#look(id, async () => {
        signal?.throwIfAborted();
        const sealed = await this.#readManifest(id).catch((damage: unknown) => {
          if (!isOfManifest(damage)) throw damage;
          return rebuildManifest(this.#fs, this.#at('sealed', id), id, place, damage);
        });
        return sealed.manifest;
      }),
    );
  }

  location(id: CheckpointId): string {
    return pathToFileURL(this.#at('sealed', id)).href;
  }

  path(id: CheckpointId): string {
    return join(this.#at('sealed', id), 'content');
  }

  remove(id: CheckpointId): Promise<void> {
    return this.#change(id, async (place) => {
      const removing = this.#at('removing', id);
      await this.#refuseWhileHeld(id, place);
      await writing(place, removing, () => removeTree(this.#fs, removing));
      for (const stage of ['sealed', 'staging'] as const) {
        const directory = this.#at(stage, id);
        await writing(place, directory, async () => {
          if (!(await this.#exists(directory))) return;
          await this.#fs.rename(directory, removing);
          await syncDirectory(this.#fs, join(this.#root, 'removing'));
          await syncDirectory(this.#fs, join(this.#root, stage));
          await removeTree(this.#fs, removing);
        });
      }
      await writing(place, removing, () => syncDirectory(this.#fs, join(this.#root, 'removing')));
      await this.#layerStore.removeClaim(id);
    });
  }

  async #refuseWhileHeld(id: CheckpointId, place: Place): Promise<void> {
    const sealed = this.#at('sealed', id);
    if (!(await writing(place, sealed, () => this.#exists(sealed)))) return;
    const hold = await currentHold(this.#root);
    if (hold === undefined) return;
    throw new TorporError('transitioning', `Checkpoint ${id} is not removed while a backup is taken.`, {
      checkpointId: id,
      details: { location: place.location, hold },
    });
  }

  async *list(): AsyncGenerator<StoredCheckpoint> {
    // A checkpoint that has a claim now is in one of the directories below until it has been removed.
    const claimed = new Set(this.#claims.ids());
    for (const stage of STAGES) {
      const names = await this.#ofStore(() =>
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
    const { bavail, blocks, bsize } = await this.#ofStore(() => this.#fs.statfs(this.#root));
    return { freeBytes: bavail * bsize, totalBytes: blocks * bsize };
  }

  async #sealNow(
    id: CheckpointId,
    place: Place,
    manifest: ManifestDraft,
    signal: AbortSignal | undefined,
  ): Promise<StoredSeal> {
    const staged = this.#at('staging', id);
    const content = join(staged, 'content');
    if (!(await writing(place, content, () => this.#exists(content)))) throw conflict(place, 'is not staged');

    const nodes = await listContent(this.#fs, content, place, signal);
    await syncContent(this.#fs, content, nodes, place, signal);
    const entries = nodes.map((node) => node.entry);
    const top = entries.map(({ path }) => path).filter((path) => !path.includes('/'));
    const contents = partsOfContent(manifest.contents ?? [], top);
    const written = await writeManifest(this.#fs, staged, manifestOf(manifest, contents, entries), place);
    await writing(place, staged, async () => {
      await syncDirectory(this.#fs, staged);
      await syncDirectory(this.#fs, join(this.#root, 'staging'));
      signal?.throwIfAborted();
      await this.#moveIntoPlace(id);
    });
    return { manifest: written.manifest, bytes: allocatedBytes(nodes) };
  }

  /** The atomic step. When it cannot be made durable it is undone, so that a failed seal seals nothing. */
  async #moveIntoPlace(id: CheckpointId): Promise<void> {
    const staged = this.#at('staging', id);
    const sealed = this.#at('sealed', id);
    await this.#fs.rename(staged, sealed);
    try {
      await this.#syncParents();
    } catch (error) {
      // When this fails too, `list` shows a sealed checkpoint that nothing refers to.
      await this.#fs.rename(sealed, staged).catch(() => {});
      throw error;
    }
  }

  /** Syncs again, because an earlier process may have crashed between the rename and the sync. */
  async #sealedBefore(id: CheckpointId, place: Place): Promise<StoredSeal> {
    await writing(place, this.#at('sealed', id), () => this.#syncParents());
    const { manifest, nodes } = await this.#inspect(id);
    return { manifest, bytes: allocatedBytes(nodes) };
  }

  async #syncParents(): Promise<void> {
    await syncDirectory(this.#fs, join(this.#root, 'sealed'));
    await syncDirectory(this.#fs, join(this.#root, 'staging'));
  }

  async #inspect(
    id: CheckpointId,
    signal?: AbortSignal,
    selection?: ContentSelection,
  ): Promise<SealedManifest & { readonly nodes: readonly ContentNode[] }> {
    signal?.throwIfAborted();
    const place = this.#place(id);
    const sealed = await this.#readManifest(id);
    const nodes = await listContent(this.#fs, this.path(id), place, signal, selection);
    checkContent(
      sealed.manifest.entries.filter(({ path }) => isSelected(path, selection)),
      nodes.map((node) => node.entry),
      place,
    );
    if (selectsLayers(selection)) await this.#inspectLayers(id, sealed.manifest);
    return { ...sealed, nodes };
  }

  async #inspectLayers(id: CheckpointId, { contents }: Manifest): Promise<void> {
    const layers = contents.flatMap((part) => part.layers);
    const looks = layers.map((layer) => this.layerStore.layers.inspect(layer.id, layer.nonce));
    await Promise.all(looks).catch((thrown: unknown) => this.#ofLayer(id, thrown));
  }

  /** Other layers are verified with the checkpoints that own them. */
  async #verifyLayers(id: CheckpointId, { contents }: Manifest, signal?: AbortSignal): Promise<void> {
    const own = contents.flatMap((part) => part.layers).filter(({ owner }) => owner === id);
    for (const layer of own) {
      const verified = this.layerStore.layers.verify(layer.id, signal);
      await verified.catch((thrown: unknown) => this.#ofLayer(id, thrown));
    }
  }

  #ofLayer(id: CheckpointId, thrown: unknown): never {
    if (!(thrown instanceof TorporError)) throw thrown;
    throw thrown.with({ checkpointId: id, details: { location: this.location(id) } });
  }

  /** The layers of sealed checkpoints that have no claim; undefined when a manifest cannot be read. */
  async #unclaimedLayers(): Promise<ReadonlySet<LayerId> | undefined> {
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
  ): Promise<Verified> {
    const place = this.#place(id);
    const directory = this.#at('sealed', id);
    const { manifest, sha256, nodes } = await this.#inspect(id, signal, selection);
    const { entries } = manifest;
    const recorded = await readDigests(this.#fs, directory, { sha256, entries }, place);
    const byPath = await digestContent(this.#fs, nodes, place, signal);
    const found = entries.map(({ path }) => byPath.get(path) ?? null);
    const merged = mergeDigests(recorded, found, entries, place);
    if (merged.isNew) await recordDigests(this.#fs, directory, sha256, merged.digests, place);
    if (selectsLayers(selection)) await this.#verifyLayers(id, manifest, signal);
    const digested = nodes.reduce((sum, { entry }) => sum + entry.bytes, 0);
    const withDigests = entries.map((entry, index) => {
      const digest = found[index];
      return typeof digest === 'string' ? { ...entry, sha256: digest } : entry;
    });
    return { manifest: { ...manifest, entries: withDigests }, digested };
  }

  async #readManifest(id: CheckpointId): Promise<SealedManifest> {
    const place = this.#place(id);
    const directory = this.#at('sealed', id);
    if (!(await reading(place, () => this.#exists(directory)))) throw missing(place);
    return readManifest(this.#fs, directory, id, place);
  }

  /** A missing checkpoint proves nothing when the store itself is missing: its disk may not be mounted. */
  async #look<T>(id: CheckpointId, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof TorporError) || error.code !== 'checkpoint_missing') throw error;
      const place = this.#place(id);
      if (await reading(place, () => this.#exists(join(this.#root, 'sealed')))) throw error;
      throw unreadable(place, 'the checkpoint store is not there', error);
    }
  }

  /** Runs work that moves or writes a checkpoint, one at a time for each checkpoint. */
  async #change<T>(id: CheckpointId, work: (place: Place) => Promise<T>): Promise<T> {
    const place = this.#place(id);
    return this.#changes.run(id, () => work(place));
  }

  /** Runs a read of the store as a whole. A missing store does not mean that checkpoints are missing. */
  async #ofStore<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      const errno = errnoOf(error);
      if (errno === undefined) throw error;
      throw unreadable({ location: pathToFileURL(this.#root).href }, errno, error);
    }
  }

  async #exists(path: string): Promise<boolean> {
    try {
      await this.#fs.lstat(path, { bigint: true });
      return true;
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return false;
      throw error;
    }
  }

  #place(id: CheckpointId): Place {
    return { checkpointId: id, location: this.location(id) };
  }

  /** Only this function makes a part of a path from an id. */
  #at(stage: Stage, id: CheckpointId): string {
    if (!isId('ckpt', id)) throw new TorporError('invalid_request', 'This is not the id of a checkpoint.');
    return join(this.#root, stage, id);
  }
}

/** In a fixed order of keys, so that a manifest that is built again has the same bytes. */
function manifestOf(
  { checkpointId, sandboxId, parentId, runtime, createdAt, parts, needs }: ManifestDraft,
  contents: Manifest['contents'],
  entries: Manifest['entries'],
): Manifest {
  const about = { checkpointId, sandboxId, parentId, runtime, createdAt, parts, needs };
  return { version: 2, ...about, contents, entries };
}

/** Whether a failure is about the manifest itself, which may be built again. */
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

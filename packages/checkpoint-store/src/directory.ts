/**
 * A checkpoint store in a local directory.
 *
 * ```
 * <root>/staging/<id>/content/…     the runtime fills it (Staging.path)
 * <root>/sealed/<id>/content/…      the same directory after the rename that seals
 *                    manifest.json  what is in it; never changes
 *                    seal.json      size and sha256 of manifest.json, written last
 *                    digests.json   sha256 of every file, once `verify` has run
 * <root>/removing/<id>/             what is being deleted: out of the way in one step, then piece by piece
 * ```
 *
 * Content has a directory of its own, so that no name in it can meet a name of ours. All three
 * directories must be on one file system: a checkpoint goes from one to the next by rename, and is always
 * in exactly one of them. One process at a time may work on a root.
 */
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import {
  type CheckpointStore,
  type ContentSelection,
  isSelected,
  type Manifest,
  type Sealed,
  type Staging,
  type StoredCheckpoint,
  type Verified,
} from '@torpor/engine';
import { KeyedMutex } from '@torpor/host';
import { type CheckpointId, isId, TorporError } from '@torpor/protocol';
import { checkContent } from './content-check.ts';
import { allocatedBytes, type ContentNode, listContent, syncContent } from './content-tree.ts';
import { digestContent, mergeDigests, readDigests, recordDigests } from './digests.ts';
import { makeDirectory, syncDirectory } from './durable.ts';
import { removeTree } from './remove-tree.ts';
import { readSealed, type SealedManifest, writeSealed } from './seal-record.ts';
import { errnoOf, missing, type Place, reading, unreadable, writing } from './storage-error.ts';
import { realFs, type StoreFs } from './store-fs.ts';

/** In the order in which a checkpoint goes through them. */
const STAGES = ['staging', 'sealed', 'removing'] as const;
type Stage = (typeof STAGES)[number];

const STATES = { staging: 'staged', sealed: 'sealed', removing: 'removing' } as const;

/** Opens the store at `root`, and makes it when it is not there. */
export async function openDirectoryStore(options: {
  readonly root: string;
  readonly fs?: StoreFs;
}): Promise<CheckpointStore> {
  const root = resolve(options.root);
  const fs = options.fs ?? realFs;
  await writing({ location: pathToFileURL(root).href }, root, async () => {
    await makeDirectory(fs, root);
    for (const stage of STAGES) await fs.mkdir(join(root, stage), { recursive: true, mode: 0o700 });
    await syncDirectory(fs, root);
  });
  return new DirectoryStore(root, fs);
}

class DirectoryStore implements CheckpointStore {
  readonly #root: string;
  readonly #fs: StoreFs;
  readonly #changes = new KeyedMutex<CheckpointId>();
  /** Apart from the changes: a removal need not wait until gigabytes are read. */
  readonly #verifications = new KeyedMutex<CheckpointId>();

  constructor(root: string, fs: StoreFs) {
    this.#root = root;
    this.#fs = fs;
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

  seal(
    staging: Staging,
    manifest: Omit<Manifest, 'entries' | 'version'>,
    signal?: AbortSignal,
  ): Promise<Sealed> {
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
    return this.#look(id, async () => (await this.#readSealed(id)).manifest);
  }

  async inspect(id: CheckpointId, signal?: AbortSignal, selection?: ContentSelection): Promise<Manifest> {
    return this.#look(id, async () => (await this.#inspect(id, signal, selection)).manifest);
  }

  verify(id: CheckpointId, signal?: AbortSignal, selection?: ContentSelection): Promise<Verified> {
    return this.#verifications.run(id, () => this.#look(id, () => this.#verify(id, signal, selection)));
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
    });
  }

  async *list(): AsyncGenerator<StoredCheckpoint> {
    for (const stage of STAGES) {
      const names = await this.#ofStore(() =>
        this.#fs.readdir(join(this.#root, stage), { encoding: 'buffer' }),
      );
      for (const name of names) {
        const id = name.toString();
        if (isId('ckpt', id)) yield { id, state: STATES[stage] };
      }
    }
  }

  async usage(): Promise<{ freeBytes: number; totalBytes: number }> {
    const { bavail, blocks, bsize } = await this.#ofStore(() => this.#fs.statfs(this.#root));
    return { freeBytes: bavail * bsize, totalBytes: blocks * bsize };
  }

  async #sealNow(
    id: CheckpointId,
    place: Place,
    manifest: Omit<Manifest, 'entries' | 'version'>,
    signal: AbortSignal | undefined,
  ): Promise<Sealed> {
    const staged = this.#at('staging', id);
    const content = join(staged, 'content');
    if (!(await writing(place, content, () => this.#exists(content)))) throw conflict(place, 'is not staged');

    const nodes = await listContent(this.#fs, content, place, signal);
    await syncContent(this.#fs, content, nodes, place, signal);
    const entries = nodes.map((node) => node.entry);
    const written = await writeSealed(this.#fs, staged, { ...manifest, version: 1, entries }, place);
    await writing(place, staged, async () => {
      await syncDirectory(this.#fs, staged);
      await syncDirectory(this.#fs, join(this.#root, 'staging'));
      signal?.throwIfAborted();
      await this.#moveIntoPlace(id);
    });
    return { manifest: written.manifest, bytes: allocatedBytes(nodes) };
  }

  /** The atomic step. When it cannot be made durable it is taken back, so that a failed seal seals nothing. */
  async #moveIntoPlace(id: CheckpointId): Promise<void> {
    const staged = this.#at('staging', id);
    const sealed = this.#at('sealed', id);
    await this.#fs.rename(staged, sealed);
    try {
      await this.#syncParents();
    } catch (error) {
      // Should this fail as well, `list` shows a sealed checkpoint that nothing refers to.
      await this.#fs.rename(sealed, staged).catch(() => {});
      throw error;
    }
  }

  /** A crash may have come between the rename and its sync, so the sync is done again. */
  async #sealedBefore(id: CheckpointId, place: Place): Promise<Sealed> {
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
    const sealed = await this.#readSealed(id);
    const nodes = await listContent(this.#fs, this.path(id), place, signal, selection);
    checkContent(
      sealed.manifest.entries.filter(({ path }) => isSelected(path, selection)),
      nodes.map((node) => node.entry),
      place,
    );
    return { ...sealed, nodes };
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
    const digested = nodes.reduce((sum, { entry }) => sum + entry.bytes, 0);
    const withDigests = entries.map((entry, index) => {
      const digest = found[index];
      return typeof digest === 'string' ? { ...entry, sha256: digest } : entry;
    });
    return { manifest: { ...manifest, entries: withDigests }, digested };
  }

  async #readSealed(id: CheckpointId): Promise<SealedManifest> {
    const place = this.#place(id);
    const directory = this.#at('sealed', id);
    if (!(await reading(place, () => this.#exists(directory)))) throw missing(place);
    return readSealed(this.#fs, directory, id, place);
  }

  /** A store that is not mounted has no checkpoints either; that something is missing there proves nothing. */
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

  /** Work that moves or writes a checkpoint: one at a time for each. */
  async #change<T>(id: CheckpointId, work: (place: Place) => Promise<T>): Promise<T> {
    const place = this.#place(id);
    return this.#changes.run(id, () => work(place));
  }

  /** Reads of the store as a whole, whose absence is never the absence of checkpoints. */
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

  /** The only place where an id becomes part of a path. */
  #at(stage: Stage, id: CheckpointId): string {
    if (!isId('ckpt', id)) throw new TorporError('invalid_request', 'This is not the id of a checkpoint.');
    return join(this.#root, stage, id);
  }
}

function conflict({ checkpointId, location }: Place, what: string): TorporError {
  return new TorporError('conflict', `Checkpoint ${checkpointId} ${what}.`, {
    ...(checkpointId === undefined ? {} : { checkpointId }),
    details: { location },
  });
}

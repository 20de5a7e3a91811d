/**
 * Checkpoints of a local store as objects of an object store: the engine's port `Replicas`.
 *
 * ```
 * record/<checkpoint>-…       a tar of the manifest, the part records and the digests
 * memory|secrets|workspace|layers/…  a tar of the entries of that part
 * layer/<layer>.<nonce>-…     a packed layer
 * program/<kind>-<digest>-…   a tar of the program's directory
 * marker/<checkpoint>-…       JSON: all objects of the checkpoint. Stored last.
 * identity/store-…            tells this store from every other one
 * ```
 *
 * Each key ends with random characters and is used once. Every object is encrypted.
 */
import { randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import type {
  ContentPart,
  ContentSelection,
  LayerReference,
  Manifest,
  ReplicaObject,
  ReplicaPart,
  Replicas,
  StoredReplica,
} from '@torpor/engine';
import { forEachBounded, type GiveWay, KeyedMutex, ProgramFailure } from '@torpor/host';
import { PROGRAM_KINDS, type ProgramId, packEntries, unpackEntries } from '@torpor/layers';
import { type DataKeys, type EncryptedObjects, probeObjectStore } from '@torpor/object-store';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { programsOf } from './claimed-programs.ts';
import type { LayeredCheckpointStore } from './directory-store.ts';
import { nameToText } from './entry-name.ts';
import { isDigest } from './programs.ts';
import { makeSockets } from './sockets.ts';

/** The records of a sealed checkpoint. Only the first is always there. */
const RECORDS = ['manifest.json', 'parts.jsonl', 'digests.json'];
/** Layers and programs that are fetched at once. */
const AT_ONCE = 4;

export interface StoreReplicasDependencies {
  /** The root of the local store. */
  readonly root: string;
  readonly store: LayeredCheckpointStore;
  readonly objects: EncryptedObjects;
  readonly keys: DataKeys;
}

export class StoreReplicas implements Replicas {
  readonly url: string;
  readonly #root: string;
  readonly #store: LayeredCheckpointStore;
  readonly #objects: EncryptedObjects;
  readonly #keys: DataKeys;
  /** One fetch of a subject at a time: forks of one checkpoint may start together. */
  readonly #fetches = new KeyedMutex<string>();

  constructor({ root, store, objects, keys }: StoreReplicasDependencies) {
    this.#root = root;
    this.#store = store;
    this.#objects = objects;
    this.#keys = keys;
    this.url = objects.store.url;
  }

  location(key: string): string {
    return this.#objects.store.location(key);
  }

  hasKey(keyId: string): boolean {
    return this.#keys.find(keyId) !== undefined;
  }

  newKey({ kind, subject }: { readonly kind: string; readonly subject: string }): string {
    return `${kind}/${subject.replaceAll('/', '-')}-${randomBytes(8).toString('hex')}`;
  }

  async partsOf(id: CheckpointId, signal: AbortSignal): Promise<readonly ReplicaPart[]> {
    const manifest = await this.#store.read(id, signal);
    const content = contentPartsOf(manifest).map(({ name }) => ({ kind: name, subject: id }));
    const layers = layersOf(manifest).map((layer) => ({ kind: 'layer', subject: subjectOfLayer(layer) }));
    const programs = programsOf(manifest).map((program) => ({
      kind: 'program',
      subject: subjectOfProgram(program),
    }));
    return [{ kind: 'record', subject: id }, ...content, ...layers, ...programs] as ReplicaPart[];
  }

  async upload(
    id: CheckpointId,
    part: ReplicaPart,
    key: string,
    signal: AbortSignal,
    giveWay: GiveWay,
  ): Promise<StoredReplica> {
    const content = await this.#contentOf(id, part, signal, giveWay);
    return this.#objects.put(key, content, signal, giveWay);
  }

  uploadMarker(
    id: CheckpointId,
    objects: readonly ReplicaObject[],
    key: string,
    signal: AbortSignal,
  ): Promise<StoredReplica> {
    const text = `${JSON.stringify({ version: 1, checkpointId: id, objects })}\n`;
    const content = async function* () {
      yield Buffer.from(text);
    };
    return this.#objects.put(key, content(), signal);
  }

  uploadIdentity(key: string, signal: AbortSignal): Promise<StoredReplica> {
    const content = async function* () {
      yield Buffer.from(`${key}\n`);
    };
    return this.#objects.put(key, content(), signal);
  }

  async has(key: string, signal: AbortSignal): Promise<boolean> {
    return (await this.#objects.store.head(key, signal)) !== undefined;
  }

  probe(signal: AbortSignal): Promise<void> {
    return probeObjectStore(this.#objects.store, signal);
  }

  async fetch(
    id: CheckpointId,
    objects: readonly ReplicaObject[],
    look: 'presence' | 'contents',
    signal: AbortSignal,
  ): Promise<readonly ReplicaPart[]> {
    return this.#fetches.run(id, () => this.#fetch(id, objects, look, signal), signal);
  }

  evict(id: CheckpointId): Promise<void> {
    return this.#fetches.run(id, () => this.#store.remove(id));
  }

  async requirePresent(objects: readonly ReplicaObject[], signal: AbortSignal): Promise<void> {
    if (!objects.some(({ kind }) => kind === 'record')) throw noObjects(this.url);
    await forEachBounded(
      objects,
      AT_ONCE,
      async ({ key }) => {
        if (!(await this.has(key, signal))) throw this.#lost(key);
      },
      signal,
    );
  }

  delete(key: string, signal: AbortSignal): Promise<void> {
    return this.#objects.store.delete(key, signal);
  }

  async #contentOf(
    id: CheckpointId,
    { kind, subject }: ReplicaPart,
    signal: AbortSignal,
    giveWay: GiveWay,
  ): Promise<AsyncIterable<Buffer>> {
    const directory = join(this.#root, 'sealed', id);
    if (kind === 'layer') {
      const layer = layersOf(await this.#store.read(id, signal)).find(
        (one) => subjectOfLayer(one) === subject,
      );
      if (layer === undefined) throw notAPart(id, subject);
      const { layers } = this.#store.layerStore;
      await layers.inspect(layer.id, layer.nonce);
      await layers.verify(layer.id, signal, 'record', giveWay);
      return layers.pack(layer.id, signal);
    }
    if (kind === 'program') {
      const { programs } = this.#store.layerStore;
      const program = programOf(subject);
      await programs.verify(program);
      const place = programs.path(program);
      return packProgram(place, await readdir(place, { encoding: 'buffer' }), signal);
    }
    const manifest = await this.#store.read(id, signal);
    if (kind === 'record') {
      // The first verification records the digests, which become part of the record.
      // Each layer is verified when it is uploaded.
      const top = manifest.contents.flatMap((part) => part.top);
      const selection = { how: 'only', names: top, layers: 'none' } as const;
      await this.#store.verify(id, signal, selection, giveWay);
      const names = await readdir(directory, { encoding: 'buffer' });
      return packEntries(
        directory,
        names.filter((name) => RECORDS.includes(name.toString())),
        signal,
      );
    }
    const part = contentPartsOf(manifest).find(({ name }) => name === kind);
    if (part === undefined) throw notAPart(id, kind);
    const content = this.#store.path(id);
    const names = await readdir(content, { encoding: 'buffer' });
    const theirs = names.filter((name) => part.top.includes(nameToText(name)));
    return packEntries(content, theirs, signal);
  }

  async #fetch(
    id: CheckpointId,
    objects: readonly ReplicaObject[],
    look: 'presence' | 'contents',
    signal: AbortSignal,
  ): Promise<readonly ReplicaPart[]> {
    const fetched: ReplicaPart[] = [];
    const objectOf = (kind: ReplicaPart['kind'], subject: string) => {
      const object = objects.find((one) => one.kind === kind && one.subject === subject);
      if (object === undefined) throw noObjects(this.url);
      return object;
    };
    const manifest = await this.#readOrFetchRecord(id, () => objectOf('record', id), fetched, signal);
    const parts = contentPartsOf(manifest);
    // All files may be in layers. Then the content directory is empty, and no object brings it.
    if (parts.length === 0 && (await this.#isContentDamaged(id, { top: [] }, look, signal)))
      await this.#store.putBack(id, 'content', async () => {});
    for (const part of parts) {
      if (!(await this.#isContentDamaged(id, part, look, signal))) continue;
      const object = objectOf(part.name, id);
      await this.#store.putBack(id, 'content', async (directory) => {
        await this.#unpack(object, directory, signal);
        await makeSockets(directory, entriesOf(manifest, part));
      });
      fetched.push(object);
    }
    const [layers, programs] = [layersOf(manifest), programsOf(manifest)];
    await this.#restoreClaim(manifest);
    const tasks = [
      ...layers.map((layer) => ({
        object: () => objectOf('layer', subjectOfLayer(layer)),
        key: layer.id,
        run: (object: () => ReplicaObject) => this.#fetchLayer(layer, object, look, signal),
      })),
      ...programs.map((program) => ({
        object: () => objectOf('program', subjectOfProgram(program)),
        key: program.digest,
        run: (object: () => ReplicaObject) => this.#fetchProgram(program, object, signal),
      })),
    ];
    await forEachBounded(
      tasks,
      AT_ONCE,
      async ({ object, key, run }) => {
        if (await this.#fetches.run(key, () => run(object), signal)) fetched.push(object());
      },
      signal,
    );
    return fetched;
  }

  async #readOrFetchRecord(
    id: CheckpointId,
    objectOf: () => ReplicaObject,
    fetched: ReplicaPart[],
    signal: AbortSignal,
  ): Promise<Manifest> {
    // Part records on this machine may be enough.
    const local = await ifIntact(this.#store.rebuild(id, signal));
    if (local !== undefined) return local;
    const object = objectOf();
    await this.#store.putBack(id, 'records', (directory) => this.#unpack(object, directory, signal));
    fetched.push(object);
    return this.#store.read(id, signal);
  }

  async #isContentDamaged(
    id: CheckpointId,
    { top }: Pick<ContentPart, 'top'>,
    look: 'presence' | 'contents',
    signal: AbortSignal,
  ): Promise<boolean> {
    const selection: ContentSelection = { how: 'only', names: top, layers: 'none' };
    const looking: Promise<unknown> =
      look === 'presence'
        ? this.#store.inspect(id, signal, selection)
        : this.#store.verify(id, signal, selection);
    return (await ifIntact(looking)) === undefined;
  }

  /** Without a claim the layers and programs of a checkpoint would be removed as unused. */
  async #restoreClaim(manifest: Manifest): Promise<void> {
    const { layerStore } = this.#store;
    const layers = layersOf(manifest).map(({ id }) => id);
    if (layerStore.hasClaim(manifest.checkpointId) || layers.length === 0) return;
    const [runsc = null, tools = null] = PROGRAM_KINDS.map((kind) => {
      const digest = manifest.needs[kind];
      return isDigest(digest) ? digest : null;
    });
    await layerStore.claim(manifest.checkpointId, { layers, runsc, tools });
    // A layer that is removed just now must be seen as missing.
    await layerStore.removalsEnded();
  }

  async #fetchLayer(
    layer: LayerReference,
    objectOf: () => ReplicaObject,
    look: 'presence' | 'contents',
    signal: AbortSignal,
  ): Promise<boolean> {
    const { layers } = this.#store.layerStore;
    const looking = async () => {
      await layers.inspect(layer.id, layer.nonce);
      if (look === 'contents') await layers.verify(layer.id, signal);
      return true;
    };
    const isIntact = await ifIntact(looking());
    if (isIntact !== undefined) return false;
    const content = new WholeContent(this.#read(objectOf(), signal));
    await layers.remove(layer.id);
    await layers.unpack(layer.id, Readable.from(content.bytes(), { objectMode: false }), signal);
    await content.requireEnd().catch(async (thrown: unknown) => {
      await layers.remove(layer.id);
      throw thrown;
    });
    await layers.inspect(layer.id, layer.nonce);
    return true;
  }

  async #fetchProgram(
    program: ProgramId,
    objectOf: () => ReplicaObject,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { programs } = this.#store.layerStore;
    // A program that is there stays as it is, because containers may run it.
    if ((await programs.list(program.kind)).includes(program.digest)) return false;
    await programs.add(program, (directory) => this.#unpack(objectOf(), directory, signal));
    return true;
  }

  #read(object: ReplicaObject, signal: AbortSignal): AsyncIterable<Buffer> {
    return this.#objects.get(object.key, object, signal);
  }

  async #unpack(object: ReplicaObject, directory: string, signal: AbortSignal): Promise<void> {
    const content = new WholeContent(this.#read(object, signal));
    await unpackEntries(directory, content.bytes(), signal);
    await content.requireEnd();
  }

  #lost(key: string): TorporError {
    return new TorporError('checkpoint_missing', `The store ${this.url} does not have the object ${key}.`, {
      details: { fault: 'missing', store: this.url, key: this.location(key) },
    });
  }
}

/**
 * tar ends when it has seen the end of the archive, which may be before the last bytes were read and compared with the
 * recorded digest. `requireEnd` reads the rest.
 */
class WholeContent {
  readonly #source: AsyncIterator<Buffer>;
  #isAtEnd = false;

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  async *bytes(): AsyncGenerator<Buffer> {
    for (;;) {
      const next = await this.#source.next();
      if (next.done === true) {
        this.#isAtEnd = true;
        return;
      }
      yield next.value;
    }
  }

  async requireEnd(): Promise<void> {
    while (!this.#isAtEnd) this.#isAtEnd = (await this.#source.next()).done === true;
  }
}

/**
 * tar complains with status 1 when the link count of a file changes meanwhile: servers of one machine share programs by hard
 * links. A program cannot be changed unnoticed, because it is fetched by its digest.
 */
async function* packProgram(
  place: string,
  names: readonly Buffer[],
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  try {
    yield* packEntries(place, names, signal);
  } catch (thrown) {
    if (!(thrown instanceof ProgramFailure && thrown.status === 1)) throw thrown;
  }
}

/** Undefined when the work proves damage. Errors that prove nothing are thrown. */
async function ifIntact<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (thrown) {
    const isProof =
      thrown instanceof TorporError &&
      (thrown.code === 'checkpoint_missing' || thrown.code === 'checkpoint_corrupt');
    if (!isProof) throw thrown;
    return undefined;
  }
}

/** The parts whose entries are in the content directory. */
function contentPartsOf({ contents }: Manifest): readonly ContentPart[] {
  return contents.filter(({ top }) => top.length > 0);
}

function entriesOf({ entries }: Manifest, { top }: ContentPart) {
  return entries.filter(({ path }) => top.includes(path.split('/', 1)[0] ?? ''));
}

function layersOf({ contents }: Manifest): readonly LayerReference[] {
  return contents.flatMap(({ layers }) => layers);
}

function subjectOfLayer({ id, nonce }: LayerReference): string {
  return `${id}.${nonce}`;
}

function subjectOfProgram({ kind, digest }: ProgramId): string {
  return `${kind}/${digest}`;
}

function programOf(subject: string): ProgramId {
  const [kind = '', digest = ''] = subject.split('/');
  const known = PROGRAM_KINDS.find((one) => one === kind);
  if (known === undefined) throw new TorporError('internal', `"${subject}" is not a program.`);
  return { kind: known, digest };
}

function notAPart(id: CheckpointId, part: string): TorporError {
  return new TorporError('internal', `Checkpoint ${id} has no part ${part}.`, { checkpointId: id });
}

function noObjects(store: string): TorporError {
  return new TorporError('checkpoint_missing', `An object of the checkpoint is not in the store ${store}.`, {
    details: { fault: 'missing', store },
  });
}

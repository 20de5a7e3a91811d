/** A store of replicas in memory for the tests of the engine, with faults that a real one cannot show on demand. */
import type { GiveWay } from '@torpor/host';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import type { ReplicaObject, ReplicaPart, Replicas, StoredReplica } from '../src/ports/replicas.ts';
import type { VirtualCopy, VirtualStore } from './virtual-files.ts';

const KEY_ID = '00'.repeat(8);

/** What several machines share. */
export class MemoryBucket {
  readonly objects = new Set<string>();
  readonly copies = new Map<CheckpointId, VirtualCopy>();
  keys = 0;
}

export class MemoryReplicas implements Replicas {
  readonly url: string;
  readonly objects: Set<string>;
  /** Thrown by every call to the store. */
  failure: TorporError | undefined;
  /** Uploads wait for it. */
  gate: Promise<void> = Promise.resolve();
  /** What each checkpoint needs beside its own record, such as a layer that others need too. */
  readonly shared: ReplicaPart[] = [];
  readonly #store: VirtualStore;
  readonly #bucket: MemoryBucket;

  /** Several machines have one bucket, and each its own store. */
  constructor(store: VirtualStore, url = 'memory://replicas', bucket: MemoryBucket = new MemoryBucket()) {
    this.#store = store;
    this.url = url;
    this.#bucket = bucket;
    this.objects = bucket.objects;
  }

  location(key: string): string {
    return `${this.url}/${key}`;
  }

  hasKey(keyId: string): boolean {
    return keyId === KEY_ID;
  }

  newKey({ kind, subject }: { readonly kind: string; readonly subject: string }): string {
    return `${kind}/${subject}-${++this.#bucket.keys}`;
  }

  async partsOf(id: CheckpointId): Promise<readonly ReplicaPart[]> {
    await this.#store.read(id);
    return [{ kind: 'record', subject: id }, ...this.shared];
  }

  async upload(
    id: CheckpointId,
    { kind }: ReplicaPart,
    key: string,
    _signal: AbortSignal,
    giveWay: GiveWay,
  ): Promise<StoredReplica> {
    await giveWay();
    const copy = kind === 'record' ? this.#store.copyOf(id) : undefined;
    if (copy !== undefined) this.#bucket.copies.set(id, copy);
    return this.#put(key);
  }

  uploadMarker(_id: CheckpointId, _objects: readonly ReplicaObject[], key: string): Promise<StoredReplica> {
    return this.#put(key);
  }

  uploadIdentity(key: string): Promise<StoredReplica> {
    return this.#put(key);
  }

  async has(key: string): Promise<boolean> {
    if (this.failure !== undefined) throw this.failure;
    return this.objects.has(key);
  }

  async probe(): Promise<void> {
    if (this.failure !== undefined) throw this.failure;
  }

  async fetch(id: CheckpointId, objects: readonly ReplicaObject[]): Promise<readonly ReplicaPart[]> {
    await this.requirePresent(objects);
    const isThere = await this.#store.read(id).then(
      () => true,
      () => false,
    );
    if (isThere) return [];
    this.#store.bringBack(id);
    const copy = this.#bucket.copies.get(id);
    if (copy !== undefined && this.#store.copyOf(id) === undefined) this.#store.place(id, copy);
    return objects.filter(({ kind }) => kind === 'record');
  }

  evict(id: CheckpointId): Promise<void> {
    return this.#store.remove(id);
  }

  async requirePresent(objects: readonly ReplicaObject[]): Promise<void> {
    if (this.failure !== undefined) throw this.failure;
    if (objects.length > 0 && objects.every(({ key }) => this.objects.has(key))) return;
    throw new TorporError('checkpoint_missing', 'An object is missing.', { details: { fault: 'missing' } });
  }

  async delete(key: string): Promise<void> {
    if (this.failure !== undefined) throw this.failure;
    this.objects.delete(key);
  }

  async #put(key: string): Promise<StoredReplica> {
    await this.gate;
    if (this.failure !== undefined) throw this.failure;
    this.objects.add(key);
    return { bytes: 1, sha256: key, keyId: KEY_ID };
  }
}

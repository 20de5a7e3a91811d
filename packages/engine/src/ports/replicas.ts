/**
 * The port to the store outside this machine in which sealed checkpoints are kept a second time.
 *
 * A checkpoint consists of objects there, one for each part. Layers and programs are shared by checkpoints. The engine decides
 * which objects exist and which are needed, in its database; this port only moves bytes. A key is written once.
 *
 * Errors have `details.fault` and the place of the object. `checkpoint_missing` and `checkpoint_corrupt` prove that an object
 * is lost or damaged; every other error proves nothing.
 */
import type { GiveWay } from '@torpor/host';
import type { CheckpointId } from '@torpor/protocol';
import type { ContentPart } from './checkpoint-store.ts';

/**
 * One part of a checkpoint, as one object. `record` is the manifest with the digests, `layers` are the entries of the content
 * directory that belong to the part of that name, and `layer` is one layer.
 */
export interface ReplicaPart {
  readonly kind: 'record' | ContentPart['name'] | 'layer' | 'program';
  /** What the object holds: a checkpoint's id, a layer with its seal, or a program. The same subject has the same content. */
  readonly subject: string;
}

/** Size and digest of the content before its encryption, and the data key that decrypts it. */
export interface StoredReplica {
  readonly bytes: number;
  readonly sha256: string;
  readonly keyId: string;
}

export interface ReplicaObject extends StoredReplica {
  readonly kind: ReplicaPart['kind'];
  readonly subject: string;
  readonly key: string;
}

export interface Replicas {
  /** For people; has no credentials. The rows of objects name their store by it. */
  readonly url: string;
  location(key: string): string;
  /** Whether this server has the data key. */
  hasKey(keyId: string): boolean;
  /** A key that was never used before. */
  newKey(of: ReplicaPart | { readonly kind: 'marker' | 'identity'; readonly subject: string }): string;

  /** What a sealed checkpoint consists of. Throws as `CheckpointStore.read` does. */
  partsOf(id: CheckpointId, signal: AbortSignal): Promise<readonly ReplicaPart[]>;
  /** Reads and verifies the part on this machine, and stores it. Gives way while it does. */
  upload(
    id: CheckpointId,
    part: ReplicaPart,
    key: string,
    signal: AbortSignal,
    giveWay: GiveWay,
  ): Promise<StoredReplica>;
  /** Stores the object that says that all others are there, and which they are. */
  uploadMarker(
    id: CheckpointId,
    objects: readonly ReplicaObject[],
    key: string,
    signal: AbortSignal,
  ): Promise<StoredReplica>;
  /** Stores the object whose key tells this store from every other one. The same key may be stored again. */
  uploadIdentity(key: string, signal: AbortSignal): Promise<StoredReplica>;
  /** Whether the store has an object under this key. */
  has(key: string, signal: AbortSignal): Promise<boolean>;
  /** Writes, lists, reads and deletes one small object. Throws the error of the first step that failed. */
  probe(signal: AbortSignal): Promise<void>;
  /**
   * Brings back the parts that this machine does not have, or has damaged, and returns them. Every part is fetched and verified
   * before it takes its place; parts that are intact do not change. With `contents` the content of every part is read to find
   * damage, otherwise presence and sizes are compared.
   */
  fetch(
    id: CheckpointId,
    objects: readonly ReplicaObject[],
    look: 'presence' | 'contents',
    signal: AbortSignal,
  ): Promise<readonly ReplicaPart[]>;
  /**
   * Removes what this machine has of a checkpoint that the store has: the content, and the layers that no other checkpoint
   * here and no instance needs. `fetch` brings it back, also after a crash in between. The caller ensures that nothing uses the
   * checkpoint. `transitioning` while a backup is taken.
   */
  evict(id: CheckpointId): Promise<void>;
  /** Throws when the store does not have an object. */
  requirePresent(objects: readonly ReplicaObject[], signal: AbortSignal): Promise<void>;
  /** Deletes an object, and what an unfinished upload of it has left. Does nothing when there is none. */
  delete(key: string, signal: AbortSignal): Promise<void>;
}

/**
 * The files of sandboxes, in layers: a layer is written once, sealed, and never written again. A stack of layers is mounted
 * as the root of a sandbox.
 *
 * A layer is created as the writable top of a stack and keeps its id when it is sealed: sealing copies and renames nothing.
 * Every question about a sealed layer ends in an answer or in one of three errors: `checkpoint_missing` and
 * `checkpoint_corrupt` are proofs, `checkpoint_unreadable` says only that the layer could not be read. Each error carries
 * `details.layerId` and `details.path`; the caller adds the checkpoint.
 */
import type { Readable } from 'node:stream';
import type { MountNamespace } from '@torpor/host';
import type { LayerId } from './layer-id.ts';

/** The record that is written when a layer is sealed. */
export interface SealRecord {
  readonly layerId: LayerId;
  /** Random. A layer that was reopened and sealed again has another one. */
  readonly nonce: string;
  /** Milliseconds since 1970. */
  readonly sealedAt: number;
  /** Counts the top directory too, and no sockets: a socket means nothing without the process that held it. */
  readonly entries: number;
  /** Allocated blocks on the file system where the layer was sealed, each file once. */
  readonly bytes: number;
}

export interface Usage {
  /** Allocated blocks, which for a sparse file are fewer than its size; each file once. */
  readonly bytes: number;
  readonly entries: number;
}

export interface Verified {
  readonly entries: number;
  /** How many bytes of files were read. */
  readonly digested: number;
  /** Whether this was the first verification, which can only compare the number of entries. */
  readonly isFirst: boolean;
}

/**
 * - `open`: writable, or left over from a process that ended;
 * - `making`: an unfinished merge or unpacking; useless once the process that made it has ended;
 * - `removing`: an unfinished removal.
 */
export type LayerState = 'open' | 'sealed' | 'making' | 'removing';

export interface ListedLayer {
  readonly id: LayerId;
  readonly state: LayerState;
}

export interface MountedStack {
  readonly at: string;
  /** Newest first. */
  readonly lower: readonly LayerId[];
  readonly upper: LayerId;
}

/** `detached`: not visible any more, but processes that hold it may still write. Its layer must not be sealed or removed. */
export type Unmounted = 'unmounted' | 'absent' | 'detached';

export interface Layers {
  /** Makes a new empty layer for writing. Nothing in it is durable before it is sealed. */
  create(): Promise<LayerId>;
  /** The directory of the layer's files. Only files of an open layer that is not mounted may be changed there. */
  path(id: LayerId): string;

  /** From now on stacks are mounted, and looked for, in this mount namespace. */
  setMountNamespace(mounts: MountNamespace): void;
  /**
   * Mounts the sealed layers `lower`, newest first, with the open layer `upper` on top at an existing directory. Does nothing
   * when the same stack is mounted there already.
   */
  mount(at: string, lower: readonly LayerId[], upper: LayerId): Promise<void>;
  /**
   * Does nothing when nothing is mounted there. A mount that stays busy is a `conflict`; with `detach`, as the last resort,
   * it is detached, and the answer says so.
   */
  unmount(at: string, whenBusy?: 'refuse' | 'detach'): Promise<Unmounted>;
  /** Every mounted stack whose upper is one of these layers. */
  mounted(): Promise<MountedStack[]>;

  /** Writes dirty data back while the layer is in use, so that sealing it later takes less time. */
  presync(id: LayerId, signal?: AbortSignal): Promise<void>;
  /**
   * When this resolves, the layer survives a loss of power. The caller makes sure that nothing writes to the layer while this
   * runs or later. Sealing a sealed layer changes nothing and returns its record.
   */
  seal(id: LayerId, signal?: AbortSignal): Promise<SealRecord>;
  /**
   * Removes the seal, so that the layer may be written again: for a pause that failed after sealing and before its commit.
   * Only for a layer that no committed checkpoint has. A layer under a mount is refused.
   */
  reopen(id: LayerId): Promise<void>;

  /** Quick: checks that the layer is there and that its seal is whole (and has this nonce, when one is given). */
  inspect(id: LayerId, nonce?: string): Promise<SealRecord>;
  /**
   * Slow: reads everything. The first run records what it finds; each later run compares with the record. `compare` leaves
   * the record to others: a process that is not the server writes nothing into a layer.
   */
  verify(id: LayerId, signal?: AbortSignal, mode?: 'record' | 'compare'): Promise<Verified>;
  /** Measures a layer in any state. */
  usage(id: LayerId, signal?: AbortSignal): Promise<Usage>;

  /**
   * Makes a new sealed layer that can replace these layers in every stack. They lie directly on top of each other, newest
   * first, and stay as they are. The new layer shares their files: until the old layers are removed, both are charged for the
   * same blocks.
   */
  merge(newestFirst: readonly LayerId[], signal?: AbortSignal): Promise<LayerId>;

  /** Packs a sealed layer as a tar stream. The stream fails when the layer cannot be read completely. */
  pack(id: LayerId, signal?: AbortSignal): Readable;
  /** Unpacks what `pack` wrote. When the layer is there already, it is left alone and the stream is not read. */
  unpack(id: LayerId, packed: Readable, signal?: AbortSignal): Promise<SealRecord>;

  /**
   * Removes a layer in any state; an absent layer is fine. After a crash in the middle `list` shows what is left, and none of
   * it passes for sealed. A mounted layer is refused (`conflict`).
   */
  remove(id: LayerId): Promise<void>;
  /** Lists each layer at least once. A layer that changes its state meanwhile may be shown in both states. */
  list(): AsyncIterable<ListedLayer>;
}

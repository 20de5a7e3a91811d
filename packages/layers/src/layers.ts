/**
 * Where the files of sandboxes are kept, as the gVisor runtime sees it: layers that are written once, sealed
 * and never written again, and stacks of them that are mounted as the root of a sandbox.
 *
 * A layer is made as the writable top of a stack and keeps its id when it is sealed: sealing copies and
 * renames nothing. What is asked about a sealed layer ends in an answer or in one of three errors:
 * `checkpoint_missing` and `checkpoint_corrupt` are proofs, `checkpoint_unreadable` says only that it could
 * not be found out. Each carries `details.layerId` and `details.path`; whoever knows the checkpoint adds it.
 */
import type { Readable } from 'node:stream';
import type { MountNamespace } from '@torpor/host';
import type { LayerId } from './layer-id.ts';

/** What was written down when a layer was sealed. */
export interface SealRecord {
  readonly layerId: LayerId;
  /** Random. A layer that was reopened and sealed again has another one. */
  readonly nonce: string;
  /** Milliseconds since 1970. */
  readonly sealedAt: number;
  /** The top itself included, and sockets not: they mean nothing without the processes that held them. */
  readonly entries: number;
  /** Allocated blocks, each file once, where it was sealed; elsewhere it may take up more or less. */
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
  /** Whether this was the first time, so that there was nothing to compare with but a number of entries. */
  readonly isFirst: boolean;
}

/**
 * - `open`: writable, or left over by somebody who is gone;
 * - `making`: half of a merge or an unpacking; of use to nobody once its maker is gone;
 * - `removing`: half of a removal.
 */
export type LayerState = 'open' | 'sealed' | 'making' | 'removing';

export interface StoredLayer {
  readonly id: LayerId;
  readonly state: LayerState;
}

export interface MountedStack {
  readonly at: string;
  /** Newest first. */
  readonly lower: readonly LayerId[];
  readonly upper: LayerId;
}

/** `detached`: out of sight, but still written to by whoever held it. Its layer must not be sealed or removed. */
export type Unmounted = 'unmounted' | 'absent' | 'detached';

export interface Layers {
  /** A new empty layer to be written. Nothing of it is durable before it is sealed. */
  create(): Promise<LayerId>;
  /** The files of a layer. Only those of an open layer that is not mounted may be changed by this path. */
  path(id: LayerId): string;

  /** From now on stacks are mounted, and looked for, in this mount namespace. */
  mountIn(mounts: MountNamespace): void;
  /**
   * Shows the sealed layers `lower`, newest first, and over them the open layer `upper` at a directory that is
   * there. Mounting again what is mounted there already changes nothing.
   */
  mount(at: string, lower: readonly LayerId[], upper: LayerId): Promise<void>;
  /**
   * Absent is fine. A mount that stays busy is a `conflict`; with `detach`, as the last resort, it is taken
   * out of sight and the answer says so.
   */
  unmount(at: string, whenBusy?: 'refuse' | 'detach'): Promise<Unmounted>;
  /** Every mounted stack whose upper is one of these layers. */
  mounted(): Promise<MountedStack[]>;

  /** Writes dirty data back while the layer is being written, so that sealing it has little left to do. */
  presync(id: LayerId, signal?: AbortSignal): Promise<void>;
  /**
   * When it resolves the layer survives a loss of power. Nobody may write to it while this runs or after it.
   * Sealing what is sealed changes nothing and returns the record that is there.
   */
  seal(id: LayerId, signal?: AbortSignal): Promise<SealRecord>;
  /**
   * Takes a seal back, so that the layer may be written again: for a pause that failed after sealing and
   * before its commit. Only for a layer that no checkpoint has; one that lies under a mount is refused.
   */
  reopen(id: LayerId): Promise<void>;

  /** Quick: that the layer is there and is the one that was sealed (with this nonce, when one is given). */
  inspect(id: LayerId, nonce?: string): Promise<SealRecord>;
  /**
   * Slow: reads everything. The first run records what it finds; each later run compares with the record. `compare` leaves
   * the record to others: a process that is not the server writes nothing into a layer.
   */
  verify(id: LayerId, signal?: AbortSignal, mode?: 'record' | 'compare'): Promise<Verified>;
  /** Of any layer, sealed or being written. */
  usage(id: LayerId, signal?: AbortSignal): Promise<Usage>;

  /**
   * A new sealed layer that may stand in every stack in the place of these, which lie directly upon each
   * other, newest first. They stay as they are. The new layer shares their files, so that until they are
   * removed the same blocks are in the usage of both.
   */
  merge(newestFirst: readonly LayerId[], signal?: AbortSignal): Promise<LayerId>;

  /** A sealed layer as a tar stream, which fails when the layer cannot be read to its end. */
  pack(id: LayerId, signal?: AbortSignal): Readable;
  /** Brings back what `pack` wrote. A layer that is there already is left alone, and the stream unread. */
  unpack(id: LayerId, packed: Readable, signal?: AbortSignal): Promise<SealRecord>;

  /**
   * In any state, or absent: gone afterwards. When it is cut short, `list` shows what is left and nothing of
   * it passes for sealed. A layer that is mounted is refused (`conflict`).
   */
  remove(id: LayerId): Promise<void>;
  /** Each layer at least once; one that moves on meanwhile may be shown in both states. */
  list(): AsyncIterable<StoredLayer>;
}

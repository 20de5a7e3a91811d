/**
 * The files of sandboxes, in layers: a layer is written once, sealed, and never written again. A stack of layers is mounted
 * as the root of a sandbox.
 *
 * A layer is created empty. It is filled as the writable top of a stack, by `copyInto`, or by a merge. It keeps its id when
 * it is sealed: sealing copies and renames nothing.
 *
 * Calls that read a sealed layer return a result or throw one of three errors:
 * - `checkpoint_missing` and `checkpoint_corrupt` prove that the layer is damaged;
 * - `checkpoint_unreadable` proves nothing: the layer could not be read this time.
 *
 * Each error has `details.layerId` and `details.path`; the caller adds the checkpoint.
 */
import type { Readable } from 'node:stream';
import type { GiveWay, MountNamespace } from '@torpor/host';
import type { LayerId } from './layer-id.ts';
import type { FoundQuotas } from './project-quotas.ts';

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
  /** The sizes of the files at the top of the layer, by name, where the seal was asked for them. `inspect` compares them. */
  readonly sizes?: Readonly<Record<string, number>>;
}

export interface SealOptions {
  /** Records the sizes of the files at the top of the layer. For a layer of few files. */
  readonly recordsSizes?: boolean;
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
 * - `creating`: an unfinished merge or unpacking; useless once the process that runs it has ended;
 * - `removing`: an unfinished removal.
 */
export type LayerState = 'open' | 'sealed' | 'creating' | 'removing';

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

/**
 * `detached`: the mount is not visible any more, but processes that hold it open may still write to it. Its upper layer must
 * not be sealed or removed.
 */
export type Unmounted = 'unmounted' | 'absent' | 'detached';

export interface Layers {
  /** Creates an empty open layer. Its files are durable only after it is sealed. */
  create(): Promise<LayerId>;
  /** The directory of the layer's files. Only files of an open layer that is not mounted may be changed there. */
  path(id: LayerId): string;
  /** Where the kernel keeps the files of the layer: of a layer that was mounted as an upper, also overlayfs's own directory. */
  directories(id: LayerId): Promise<readonly string[]>;

  /** Later calls mount stacks, and look for mounted stacks, in this mount namespace. */
  setMountNamespace(mounts: MountNamespace): void;
  /**
   * Mounts the sealed layers `lower`, newest first, with the open layer `upper` on top at an existing directory. Does nothing
   * when the same stack is mounted there already.
   */
  mount(at: string, lower: readonly LayerId[], upper: LayerId): Promise<void>;
  /**
   * Does nothing when nothing is mounted there. Throws `conflict` when the mount stays busy; with `detach`, detaches such a
   * mount and resolves to `detached`.
   */
  unmount(at: string, whenBusy?: 'refuse' | 'detach'): Promise<Unmounted>;
  /** Every mounted stack whose upper is one of these layers. */
  mounted(): Promise<MountedStack[]>;

  /** Writes dirty data back while the layer is in use, so that sealing it later takes less time. */
  presync(id: LayerId, signal?: AbortSignal): Promise<void>;
  /**
   * When this resolves, the layer survives a power loss. The caller makes sure that nothing writes to the layer while this
   * runs or later. Sealing a sealed layer changes nothing and returns its record.
   */
  seal(id: LayerId, signal?: AbortSignal, options?: SealOptions): Promise<SealRecord>;
  /**
   * Copies the files of the open layer `from`, to which nothing writes meanwhile, into the new open layer `to`, which is not
   * mounted. The copy looks the same as a lower layer: whiteouts, overlay attributes, hard links and times are kept. It
   * shares blocks with the original where the file system can (`sharesBlocks`). After a failure `to` can only be removed.
   */
  copyInto(to: LayerId, from: LayerId, signal?: AbortSignal): Promise<void>;
  /** Whether copies of files share their blocks with the original, so that a copy costs nothing for their size. */
  sharesBlocks(): Promise<boolean>;
  /** The project quotas of the file system that the layers are on. */
  projectQuotas(): Promise<FoundQuotas>;
  /**
   * Removes the seal, so that the layer may be written again. Used when a pause fails after the layer was sealed and before
   * the commit. No committed checkpoint may contain the layer. Throws `conflict` for a lower layer of a mount.
   */
  reopen(id: LayerId): Promise<void>;

  /** Quick: checks that the layer exists and that its seal record is intact (and has this nonce, when one is given). */
  inspect(id: LayerId, nonce?: string): Promise<SealRecord>;
  /**
   * Slow: reads everything. The first run records what it finds; each later run compares with the record. With `compare`
   * the first run records nothing, because only the server may write into a layer. With `giveWay` it gives way while it
   * reads.
   */
  verify(
    id: LayerId,
    signal?: AbortSignal,
    mode?: 'record' | 'compare',
    giveWay?: GiveWay,
  ): Promise<Verified>;
  /** Whether the last `verify` of the layer has found damage. */
  isKnownDamaged(id: LayerId): Promise<boolean>;
  /** Measures a layer in any state. */
  usage(id: LayerId, signal?: AbortSignal): Promise<Usage>;

  /**
   * Creates a sealed layer that can replace these layers in every stack. They lie directly on top of each other, newest
   * first, and do not change. The new layer shares their files: until the old layers are removed, both are charged for the
   * same blocks.
   */
  merge(newestFirst: readonly LayerId[], signal?: AbortSignal): Promise<LayerId>;

  /** Packs a sealed layer as a tar stream. The stream fails when the layer cannot be read completely. */
  pack(id: LayerId, signal?: AbortSignal): Readable;
  /** Unpacks what `pack` wrote. When the layer exists already, it does not change and the stream is not read. */
  unpack(id: LayerId, packed: Readable, signal?: AbortSignal): Promise<SealRecord>;

  /**
   * Removes a layer in any state; does nothing when the layer does not exist. After a crash during the removal, `list` shows
   * the rest as `removing`. Throws `conflict` for a mounted layer.
   */
  remove(id: LayerId): Promise<void>;
  /** Lists each layer at least once. A layer that changes its state meanwhile may be listed in both states. */
  list(): AsyncIterable<ListedLayer>;
}

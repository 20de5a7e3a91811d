/**
 * The interface of the checkpoint store for a runtime that mounts its layers.
 *
 * The store keeps a layer while a checkpoint claims it or a sandbox uses it, and removes it afterwards. The claim is
 * written *before* an upper layer is sealed. After a crash, every sealed upper layer can therefore be traced to a
 * checkpoint. For a checkpoint that was never committed, the claim is the only record from which its layers can be deleted.
 * A merged layer is claimed by the next checkpoint of its sandbox; until then only the record of the instance names it.
 */
import type { CheckpointId } from '@torpor/protocol';
import type { LayerId } from './layer-id.ts';
import type { Layers } from './layers.ts';
import type { ProgramStore } from './program-store.ts';

/** The record of what a checkpoint needs outside its content directory. */
export interface LayerClaim {
  /** Every layer of its stack. Claims of earlier versions list only the layers that the checkpoint added. */
  readonly layers: readonly LayerId[];
  /**
   * The digest of the runsc that ran the sandbox, also for a checkpoint without memory. Null when an earlier version did
   * not record the digest.
   */
  readonly runsc: string | null;
  /** The digest of the guest tools that the sandbox ran with, as `runsc`. */
  readonly tools: string | null;
}

/** The layers that sandboxes use: mounted ones, and those that their next checkpoints may refer to. Undefined when a record of a sandbox cannot be read; then no layer is removed. */
export type LayersInUse = () => Promise<ReadonlySet<LayerId> | undefined>;

export interface LayerStore {
  readonly layers: Layers;
  readonly programs: ProgramStore;
  /** The claim is durable when the promise resolves. A later claim of the same checkpoint replaces the earlier one. */
  claim(checkpoint: CheckpointId, claim: LayerClaim): Promise<void>;
  /** Resolves when the removals of layers that are under way have ended. A layer that was claimed before is spared by later ones. */
  removalsEnded(): Promise<void>;
  hasClaim(checkpoint: CheckpointId): boolean;
  /** Whether a checkpoint claims the layer. True when any claim is unreadable, so that no layer is deleted by mistake. */
  isClaimed(layer: LayerId): Promise<boolean>;
  /**
   * Registers a function that returns the layers that instances use, running or warm. No layer is removed before
   * the first registration, because instances of an earlier server may use it. The returned function unregisters the source.
   */
  addUsageSource(source: LayersInUse): () => void;
  /**
   * Removes those of these layers that no checkpoint needs and no sandbox uses. Called after an instance has ended: the
   * checkpoint of a layer may have been removed while the instance used the layer.
   */
  release(layers: readonly LayerId[]): Promise<void>;
  /**
   * Removes every layer that no checkpoint claims and no sandbox uses, and the rest of unfinished merges and removals.
   * Called when a server starts, before anything else uses the layers.
   */
  sweep(): Promise<void>;
}

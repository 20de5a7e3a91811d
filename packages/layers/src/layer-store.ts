/**
 * What a runtime asks of the checkpoint store that its layers lie in.
 *
 * A layer is content of the store. It stays for as long as a checkpoint claims it or a user (a running sandbox) stands on
 * it, and is removed when neither does. A checkpoint claims its layers *before* they are sealed, so that a layer is never
 * sealed for a checkpoint that it cannot be found by. A checkpoint that was never committed has nothing but its claim to be
 * cleared by.
 */
import type { CheckpointId } from '@torpor/protocol';
import type { LayerId } from './layer-id.ts';
import type { Layers } from './layers.ts';

/** What a checkpoint needs besides its own content directory. */
export interface LayerClaim {
  /** Every layer of its stack. Claims of earlier versions list only the layers that the checkpoint brought. */
  readonly layers: readonly LayerId[];
  /** The digest of the runsc that wrote its memory; null when there is none, or when an earlier version did not say. */
  readonly runsc: string | null;
}

/** Undefined when the user cannot say, because a record of a sandbox cannot be read: then no layer is removed. */
export type LayersInUse = () => Promise<ReadonlySet<LayerId> | undefined>;

export interface LayerStore {
  readonly layers: Layers;
  /** Durable when it resolves. A later claim of the same checkpoint replaces the earlier one. */
  claim(checkpoint: CheckpointId, claim: LayerClaim): Promise<void>;
  hasClaim(checkpoint: CheckpointId): boolean;
  /** Whether a checkpoint claims the layer. Also true when the claim of some checkpoint cannot be read. */
  isClaimed(layer: LayerId): Promise<boolean>;
  /** Of all checkpoints; undefined when the claim of one cannot be read. */
  claims(): Promise<readonly LayerClaim[] | undefined>;
  /**
   * Says which layers running sandboxes stand on. Until a user is known no layer is removed, because sandboxes of an
   * earlier server may run. The returned function takes the user away.
   */
  addUsageSource(user: LayersInUse): () => void;
  /**
   * Removes every layer that no checkpoint claims and no user stands on, and what a merge or a removal left half done. For
   * the start of a server, before anything else uses the layers.
   */
  sweep(): Promise<void>;
}

/** Decides which layers of a checkpoint store are kept and which are removed: see `LayerStore` of @torpor/layers. */
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { Mutex } from '@torpor/host';
import type {
  LayerClaim,
  LayerClaims,
  LayerId,
  LayerStore,
  Layers,
  LayersInUse,
  ProgramStore,
} from '@torpor/layers';
import type { CheckpointId } from '@torpor/protocol';
import { mapWriteErrors } from './storage-error.ts';

const IN_USE_TRIES = 10;
const IN_USE_RETRY_MS = 20;

interface LayerRetentionDependencies {
  readonly layers: Layers;
  readonly claims: LayerClaims;
  readonly programs: ProgramStore;
  /**
   * The layers in the manifests of sealed checkpoints that have no claim, for example after an operator copied checkpoints
   * back by hand. These layers must be kept. Undefined when one of these manifests cannot be read.
   */
  readonly layersOfCheckpointsWithoutClaim: () => Promise<ReadonlySet<LayerId> | undefined>;
}

export class LayerRetention implements LayerStore {
  readonly layers: Layers;
  readonly programs: ProgramStore;
  readonly #claims: LayerClaims;
  readonly #layersOfCheckpointsWithoutClaim: LayerRetentionDependencies['layersOfCheckpointsWithoutClaim'];
  readonly #usageSources = new Set<LayersInUse>();
  /**
   * One removal at a time. Of two at once, each would leave a shared layer to the other: because the other's claim still counts,
   * or because a record that is being removed still names the layer.
   */
  readonly #removals = new Mutex();

  constructor({ layers, claims, programs, layersOfCheckpointsWithoutClaim }: LayerRetentionDependencies) {
    this.layers = layers;
    this.programs = programs;
    this.#claims = claims;
    this.#layersOfCheckpointsWithoutClaim = layersOfCheckpointsWithoutClaim;
  }

  claim(checkpoint: CheckpointId, claim: LayerClaim): Promise<void> {
    const path = this.#claims.path(checkpoint);
    const place = { checkpointId: checkpoint, location: pathToFileURL(path).href };
    return mapWriteErrors(place, path, () => this.#claims.set(checkpoint, claim));
  }

  removalsEnded(): Promise<void> {
    return this.#removals.run(() => {});
  }

  hasClaim(checkpoint: CheckpointId): boolean {
    return this.#claims.has(checkpoint);
  }

  async isClaimed(layer: LayerId): Promise<boolean> {
    return !(await this.#claims.isComplete()) || this.#claims.isClaimed(layer);
  }

  addUsageSource(source: LayersInUse): () => void {
    this.#usageSources.add(source);
    return () => this.#usageSources.delete(source);
  }

  /**
   * Removes the claim of a checkpoint, and those of its layers that no other checkpoint claims and no instance uses.
   *
   * The claim stays when another claim cannot be read, or when the layers in use are not known. Then the store still lists
   * the checkpoint as `removing`, and a later call finishes the removal. The layers in use are not known while an instance
   * directory has no record, for example during a start.
   */
  removeClaim(checkpoint: CheckpointId): Promise<void> {
    return this.#removals.run(() => this.#removeClaim(checkpoint));
  }

  async #removeClaim(checkpoint: CheckpointId): Promise<void> {
    if (!this.#claims.has(checkpoint)) return;
    if (!(await this.#claims.isComplete(checkpoint))) return;
    // When the claim cannot be read, the next sweep removes its layers.
    const layers = this.#claims.of(checkpoint)?.layers ?? [];
    const released = layers.filter((layer) => !this.#claims.isClaimed(layer, checkpoint));
    const inUse = released.length > 0 ? await this.#inUse() : new Set<LayerId>();
    if (inUse === undefined) return;
    for (const layer of released) {
      // Another checkpoint may have claimed the layer meanwhile: templates share layers.
      if (!inUse.has(layer) && !this.#claims.isClaimed(layer, checkpoint)) await this.layers.remove(layer);
    }
    // Last, because a claim without a checkpoint directory marks an unfinished removal.
    await this.#claims.remove(checkpoint);
  }

  release(layers: readonly LayerId[]): Promise<void> {
    return this.#removals.run(() => this.#release(layers));
  }

  async #release(layers: readonly LayerId[]): Promise<void> {
    // Nearly always every layer is still claimed.
    if (layers.every((layer) => this.#claims.isClaimed(layer))) return;
    const isNeeded = await this.#neededByCheckpoints();
    const inUse = await this.#inUseSoon();
    // What stays because the layers in use are not known is removed by the next sweep.
    if (inUse === undefined) return;
    for (const layer of layers)
      if (!inUse.has(layer) && !(await isNeeded(layer))) await this.layers.remove(layer);
  }

  async sweep(): Promise<void> {
    const inUse = await this.#inUse();
    const isNeededByCheckpoint = await this.#neededByCheckpoints();
    for await (const { id, state } of this.layers.list()) {
      const isUnfinished = state === 'removing' || state === 'creating';
      // An open layer that no sandbox has mounted is a leftover, even if a checkpoint that was never sealed claims it.
      const isUnused = inUse?.has(id) === false && !(state === 'sealed' && (await isNeededByCheckpoint(id)));
      if (isUnfinished || isUnused) await this.layers.remove(id);
    }
  }

  /** Answers for one layer whether a checkpoint needs it, or may need it because its claim or manifest cannot be read. */
  async #neededByCheckpoints(): Promise<(layer: LayerId) => Promise<boolean>> {
    const isComplete = await this.#claims.isComplete();
    let unclaimed: ReturnType<LayerRetentionDependencies['layersOfCheckpointsWithoutClaim']> | undefined;
    return async (layer) => {
      if (!isComplete || this.#claims.isClaimed(layer)) return true;
      unclaimed ??= this.#layersOfCheckpointsWithoutClaim();
      return (await unclaimed)?.has(layer) !== false;
    };
  }

  /** The layers in use are not known for a moment while an instance begins or is removed. */
  async #inUseSoon(): Promise<ReadonlySet<LayerId> | undefined> {
    for (let tries = 1; ; tries++) {
      const inUse = await this.#inUse();
      if (inUse !== undefined || tries === IN_USE_TRIES) return inUse;
      await delay(IN_USE_RETRY_MS);
    }
  }

  async #inUse(): Promise<ReadonlySet<LayerId> | undefined> {
    if (this.#usageSources.size === 0) return undefined;
    const all = new Set<LayerId>();
    for (const source of this.#usageSources) {
      const used = await source();
      if (used === undefined) return undefined;
      for (const layer of used) all.add(layer);
    }
    return all;
  }
}

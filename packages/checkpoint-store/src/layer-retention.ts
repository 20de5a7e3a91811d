/** The layers of a checkpoint store, and the rule by which they are kept: see `LayerStore` of @torpor/layers. */
import { pathToFileURL } from 'node:url';
import type { LayerClaim, LayerClaims, LayerId, LayerStore, Layers, LayersInUse } from '@torpor/layers';
import type { CheckpointId } from '@torpor/protocol';
import { mapWriteErrors } from './storage-error.ts';

interface LayerRetentionDependencies {
  readonly layers: Layers;
  readonly claims: LayerClaims;
  /**
   * The layers in the manifests of sealed checkpoints that have no claim, as after a restore by hand. Undefined when one of
   * these manifests cannot be read.
   */
  readonly layersOfCheckpointsWithoutClaim: () => Promise<ReadonlySet<LayerId> | undefined>;
}

export class LayerRetention implements LayerStore {
  readonly layers: Layers;
  readonly #claims: LayerClaims;
  readonly #layersOfCheckpointsWithoutClaim: LayerRetentionDependencies['layersOfCheckpointsWithoutClaim'];
  readonly #usageSources = new Set<LayersInUse>();

  constructor({
    layers,
    claims,
    layersOfCheckpointsWithoutClaim: unclaimedLayers,
  }: LayerRetentionDependencies) {
    this.layers = layers;
    this.#claims = claims;
    this.#layersOfCheckpointsWithoutClaim = unclaimedLayers;
  }

  claim(checkpoint: CheckpointId, claim: LayerClaim): Promise<void> {
    const path = this.#claims.path(checkpoint);
    const place = { checkpointId: checkpoint, location: pathToFileURL(path).href };
    return mapWriteErrors(place, path, () => this.#claims.set(checkpoint, claim));
  }

  hasClaim(checkpoint: CheckpointId): boolean {
    return this.#claims.has(checkpoint);
  }

  async isClaimed(layer: LayerId): Promise<boolean> {
    return !(await this.#claims.isComplete()) || this.#claims.isClaimed(layer);
  }

  async claims(): Promise<readonly LayerClaim[] | undefined> {
    return (await this.#claims.isComplete()) ? this.#claims.all() : undefined;
  }

  addUsageSource(user: LayersInUse): () => void {
    this.#usageSources.add(user);
    return () => this.#usageSources.delete(user);
  }

  /**
   * Removes the claim of a checkpoint, and the layers in it that no other checkpoint claims and no user stands on. While the
   * other claims or the users are not known, the claim stays. The store then still lists the checkpoint as `removing`, and a
   * later call finishes the removal. Users are often unknown for a moment, because a sandbox that starts has no record yet.
   */
  async removeClaim(checkpoint: CheckpointId): Promise<void> {
    if (!this.#claims.has(checkpoint)) return;
    if (!(await this.#claims.isComplete(checkpoint))) return;
    // The layers of a claim that cannot be read are left to the next sweep.
    const layers = this.#claims.of(checkpoint)?.layers ?? [];
    const released = layers.filter((layer) => !this.#claims.isClaimed(layer, checkpoint));
    const inUse = released.length > 0 ? await this.#inUse() : new Set<LayerId>();
    if (inUse === undefined) return;
    for (const layer of released) if (!inUse.has(layer)) await this.layers.remove(layer);
    // Last: until then the claim shows what is left to remove.
    await this.#claims.remove(checkpoint);
  }

  async sweep(): Promise<void> {
    const inUse = await this.#inUse();
    const isComplete = await this.#claims.isComplete();
    let unclaimed: ReturnType<LayerRetentionDependencies['layersOfCheckpointsWithoutClaim']> | undefined;
    const isNeededByCheckpoint = async (id: LayerId) => {
      if (!isComplete || this.#claims.isClaimed(id)) return true;
      unclaimed ??= this.#layersOfCheckpointsWithoutClaim();
      return (await unclaimed)?.has(id) !== false;
    };
    for await (const { id, state } of this.layers.list()) {
      const isUnfinished = state === 'removing' || state === 'making';
      // An open layer that no sandbox stands on is a leftover, also when a checkpoint that was never sealed claims it.
      const isUnused = inUse?.has(id) === false && !(state === 'sealed' && (await isNeededByCheckpoint(id)));
      if (isUnfinished || isUnused) await this.layers.remove(id);
    }
  }

  async #inUse(): Promise<ReadonlySet<LayerId> | undefined> {
    if (this.#usageSources.size === 0) return undefined;
    const all = new Set<LayerId>();
    for (const user of this.#usageSources) {
      const used = await user();
      if (used === undefined) return undefined;
      for (const layer of used) all.add(layer);
    }
    return all;
  }
}

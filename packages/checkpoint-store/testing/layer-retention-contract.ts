/**
 * What every checkpoint store must do with layers: they are claimed before they are sealed, kept while a checkpoint claims them
 * or a sandbox has them mounted, and removed afterwards. The tests of an implementation call `layerRetentionContract` once.
 */
import * as files from 'node:fs/promises';
import { join } from 'node:path';
import type { LayerReference } from '@torpor/engine';
import type { LayerId } from '@torpor/layers';
import type { CheckpointId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { LayeredCheckpointStore } from '../src/directory-store.ts';
import { type RetentionSubject, sealNeeding } from './retention-subject.ts';
import { listed, newCheckpointId } from './small-checkpoint.ts';

export function layerRetentionContract(name: string, create: () => Promise<RetentionSubject>): void {
  describe(`layer retention contract: ${name}`, () => {
    let subject: RetentionSubject;
    let store: LayeredCheckpointStore;
    beforeEach(async () => {
      subject = await create();
      store = await subject.open();
    });
    afterEach(() => subject.close());

    /** A sealed layer with one file, claimed by a checkpoint when one is given. */
    async function sealedLayer(
      owner: CheckpointId,
      claimedBy: CheckpointId | null = owner,
    ): Promise<LayerReference> {
      const { layers } = store.layerStore;
      const id = await layers.create();
      await files.writeFile(join(layers.path(id), 'file'), 'content');
      if (claimedBy !== null)
        await store.layerStore.claim(claimedBy, { layers: [id], runsc: null, tools: null });
      const { nonce } = await layers.seal(id);
      return { id, nonce, owner };
    }

    async function storedLayers(): Promise<LayerId[]> {
      const ids: LayerId[] = [];
      for await (const { id } of store.layerStore.layers.list()) ids.push(id);
      return ids.sort();
    }

    const using =
      (...layers: LayerId[]) =>
      async () =>
        new Set(layers);

    describe('removing a checkpoint', () => {
      it('removes its layers, and leaves those that another checkpoint claims', async () => {
        store.layerStore.addUsageSource(using());
        const first = newCheckpointId();
        const [shared, own] = [await sealedLayer(first), await sealedLayer(first)];
        await sealNeeding(store, { layers: [own, shared] }, first);
        const second = await sealNeeding(store, { layers: [shared] });
        await store.remove(first);
        expect(await storedLayers()).toEqual([shared.id]);
        await store.inspect(second);
        await store.remove(second);
        expect(await storedLayers()).toEqual([]);
        expect(await listed(store)).toEqual([]);
      });

      it('leaves a layer that another checkpoint claims while the removal is under way', async () => {
        const first = newCheckpointId();
        const shared = await sealedLayer(first);
        await sealNeeding(store, { layers: [shared] }, first);
        store.layerStore.addUsageSource(async () => {
          await store.layerStore.claim(newCheckpointId(), { layers: [shared.id], runsc: null, tools: null });
          return new Set();
        });
        await store.remove(first);
        expect(await storedLayers()).toEqual([shared.id]);
      });

      it('keeps the layers that a sandbox has mounted', async () => {
        const id = newCheckpointId();
        const [used, unused] = [await sealedLayer(id), await sealedLayer(id)];
        await sealNeeding(store, { layers: [used, unused] }, id);
        store.layerStore.addUsageSource(using(used.id));
        await store.remove(id);
        expect(await storedLayers()).toEqual([used.id]);
      });

      it.each([
        ['no source of mounted layers is registered', undefined],
        ['a source cannot tell which layers are mounted', async () => undefined],
      ])('keeps all layers when %s, and finishes when it is known', async (_, source) => {
        const id = newCheckpointId();
        const layer = await sealedLayer(id);
        await sealNeeding(store, { layers: [layer] }, id);
        const unregister = source === undefined ? () => {} : store.layerStore.addUsageSource(source);
        await store.remove(id);
        expect(await storedLayers()).toEqual([layer.id]);
        expect(await listed(store)).toEqual([{ id, state: 'removing' }]);
        unregister();
        store.layerStore.addUsageSource(using());
        await store.remove(id);
        expect([await storedLayers(), await listed(store)]).toEqual([[], []]);
      });

      it('leaves all layers while the claim of another checkpoint cannot be read', async () => {
        const id = newCheckpointId();
        const layer = await sealedLayer(id);
        await sealNeeding(store, { layers: [layer] }, id);
        const other = await sealNeeding(store, { layers: [await sealedLayer(newCheckpointId(), null)] });
        const text = await subject.damage.replaceClaim(other, '{');
        store = await subject.open();
        store.layerStore.addUsageSource(using());
        await store.remove(id);
        expect(await storedLayers()).toContain(layer.id);
        // After the repair the claim counts again, and the removal can be finished.
        await subject.damage.replaceClaim(other, text);
        await store.remove(id);
        expect(await storedLayers()).toHaveLength(1);
      });

      it('removes a checkpoint whose own claim cannot be read, and leaves its layers to the next sweep', async () => {
        const id = newCheckpointId();
        const layer = await sealedLayer(id);
        await sealNeeding(store, { layers: [layer] }, id);
        await subject.damage.replaceClaim(id, '{');
        store = await subject.open();
        store.layerStore.addUsageSource(using());
        await store.remove(id);
        expect([await storedLayers(), await listed(store)]).toEqual([[layer.id], []]);
        await store.layerStore.sweep();
        expect(await storedLayers()).toEqual([]);
      });

      it('removes the layers of a checkpoint that was never sealed', async () => {
        store.layerStore.addUsageSource(using());
        const id = newCheckpointId();
        await store.stage(id);
        await sealedLayer(id);
        await store.remove(id);
        expect([await storedLayers(), store.layerStore.hasClaim(id)]).toEqual([[], false]);
      });

      it('is shown as unfinished when only its claim is left, and can be repeated', async () => {
        const id = newCheckpointId();
        await sealNeeding(store, { layers: [await sealedLayer(id)] }, id);
        await subject.damage.deleteCheckpoint(id);
        store = await subject.open();
        store.layerStore.addUsageSource(using());
        expect(await listed(store)).toEqual([{ id, state: 'removing' }]);
        await store.remove(id);
        expect([await listed(store), await storedLayers()]).toEqual([[], []]);
      });
    });

    describe('releasing the layers of an ended sandbox', () => {
      it('removes those whose checkpoint was removed while the sandbox had them mounted', async () => {
        const [gone, there] = [newCheckpointId(), newCheckpointId()];
        const [left, claimed] = [await sealedLayer(gone), await sealedLayer(there)];
        await sealNeeding(store, { layers: [left, claimed] }, gone);
        await sealNeeding(store, { layers: [claimed] }, there);
        const ended = store.layerStore.addUsageSource(using(left.id, claimed.id));
        await store.remove(gone);
        expect(await storedLayers()).toEqual([left.id, claimed.id].sort());
        ended();
        store.layerStore.addUsageSource(using());
        await store.layerStore.release([left.id, claimed.id]);
        expect(await storedLayers()).toEqual([claimed.id]);
      });

      it.each([
        ['another sandbox has mounted', async (layer: LayerId) => new Set([layer])],
        ['another sandbox may have mounted', async () => undefined],
      ])('keeps a layer that %s', async (_, source) => {
        const layer = await sealedLayer(newCheckpointId(), null);
        store.layerStore.addUsageSource(() => source(layer.id));
        await store.layerStore.release([layer.id]);
        expect(await storedLayers()).toEqual([layer.id]);
      });

      it('keeps a layer that a checkpoint without a claim needs', async () => {
        const id = newCheckpointId();
        const layer = await sealedLayer(id);
        await sealNeeding(store, { layers: [layer] }, id);
        await subject.damage.deleteClaim(id);
        store = await subject.open();
        store.layerStore.addUsageSource(using());
        await store.layerStore.release([layer.id]);
        await store.inspect(id);
      });
    });

    describe('a sweep', () => {
      it('removes layers that no checkpoint claims and no sandbox has mounted, and nothing else', async () => {
        const { layers } = store.layerStore;
        const id = newCheckpointId();
        const claimed = await sealedLayer(id);
        await sealNeeding(store, { layers: [claimed] }, id);
        const [used] = [await layers.create(), await layers.create()];
        await sealedLayer(newCheckpointId(), null);
        store.layerStore.addUsageSource(using(used));
        await store.layerStore.sweep();
        expect(await storedLayers()).toEqual([claimed.id, used].sort());
      });

      it('keeps a sealed layer that an unsealed checkpoint claims', async () => {
        const layer = await sealedLayer(newCheckpointId());
        store = await subject.open();
        store.layerStore.addUsageSource(using());
        await store.layerStore.sweep();
        expect(await storedLayers()).toEqual([layer.id]);
      });

      it('keeps the layers of a sealed checkpoint without a claim, as after a restore by hand', async () => {
        const id = newCheckpointId();
        await sealNeeding(store, { layers: [await sealedLayer(id)] }, id);
        await subject.damage.deleteClaim(id);
        store = await subject.open();
        store.layerStore.addUsageSource(using());
        await store.layerStore.sweep();
        await store.inspect(id);
      });

      it('removes an open layer that only an unsealed checkpoint claims', async () => {
        const open = await store.layerStore.layers.create();
        await store.layerStore.claim(newCheckpointId(), { layers: [open], runsc: null, tools: null });
        store.layerStore.addUsageSource(using());
        await store.layerStore.sweep();
        expect(await storedLayers()).toEqual([]);
      });
    });
  });
}

import * as files from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LayerReference } from '@torpor/engine';
import { failureOf } from '@torpor/engine/testing';
import type { LayerId } from '@torpor/layers';
import type { CheckpointId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { listed, manifestFor, newCheckpointId } from '../testing/small-checkpoint.ts';
import { type LayeredCheckpointStore, openDirectoryStore } from './directory-store.ts';

let root: string;
let store: LayeredCheckpointStore;
beforeEach(async () => {
  root = await files.mkdtemp(join(tmpdir(), 'layer-retention-'));
  store = await openDirectoryStore({ root });
});
afterEach(() => files.rm(root, { recursive: true, force: true }));

/** A sealed layer with one file, claimed by a checkpoint when one is given. */
async function sealedLayer(
  owner: CheckpointId,
  claimedBy: CheckpointId | null = owner,
): Promise<LayerReference> {
  const { layers } = store.layerStore;
  const id = await layers.create();
  await files.writeFile(join(layers.path(id), 'file'), 'content');
  if (claimedBy !== null) await store.layerStore.claim(claimedBy, { layers: [id], runsc: null });
  const { nonce } = await layers.seal(id);
  return { id, nonce, owner };
}

/** A sealed checkpoint that has these layers and nothing else. */
async function sealWith(layers: readonly LayerReference[], id = newCheckpointId()): Promise<CheckpointId> {
  const staging = await store.stage(id);
  await store.layerStore.claim(id, { layers: layers.map((layer) => layer.id), runsc: 'digest' });
  const part = { name: 'layers', encoding: 'whole', top: [], layers } as const;
  await store.seal(staging, { ...manifestFor(id), contents: [part] });
  return id;
}

const stored = () => files.readdir(join(root, 'layers'));
const using =
  (...layers: LayerId[]) =>
  async () =>
    new Set(layers);

describe('the layers of a checkpoint', () => {
  it('are inspected and verified with it', async () => {
    const id = newCheckpointId();
    const layer = await sealedLayer(id);
    await sealWith([layer], id);
    await store.inspect(id);
    await store.verify(id);
    await files.writeFile(join(root, 'layers', layer.id, 'fs', 'file'), 'changed');
    await store.inspect(id);
    const damaged = { code: 'checkpoint_corrupt', checkpointId: id };
    expect(await failureOf(store.verify(id))).toMatchObject(damaged);
    await files.writeFile(join(root, 'layers', layer.id, 'seal.json'), '{');
    expect(await failureOf(store.inspect(id))).toMatchObject(damaged);
    // The memory is not affected by its files.
    await store.inspect(id, undefined, { how: 'only', names: ['memory'] });
  });

  it('are missing when a layer was deleted, and corrupt when it was sealed another time', async () => {
    const id = newCheckpointId();
    const layer = await sealedLayer(id);
    await sealWith([{ ...layer, nonce: 'another' }], id);
    expect(await failureOf(store.inspect(id))).toMatchObject({ code: 'checkpoint_corrupt' });
    await files.rm(join(root, 'layers', layer.id), { recursive: true });
    const missing = { code: 'checkpoint_missing', checkpointId: id, details: { layerId: layer.id } };
    expect(await failureOf(store.inspect(id))).toMatchObject(missing);
  });

  it('are verified only by the checkpoint that owns them', async () => {
    const owner = newCheckpointId();
    const layer = await sealedLayer(owner);
    const other = await sealWith([layer]);
    await sealWith([layer], owner);
    await store.verify(owner);
    await files.writeFile(join(root, 'layers', layer.id, 'fs', 'file'), 'changed');
    await store.verify(other);
    expect((await failureOf(store.verify(owner))).code).toBe('checkpoint_corrupt');
  });

  it('are in a manifest that is rebuilt', async () => {
    const id = newCheckpointId();
    await sealWith([await sealedLayer(id)], id);
    const manifest = await store.read(id);
    await files.rm(join(root, 'sealed', id, 'manifest.json'));
    expect(await store.rebuild(id)).toEqual(manifest);
  });
});

describe('removing a checkpoint', () => {
  it('removes its layers, and leaves those that another checkpoint claims', async () => {
    store.layerStore.addUsageSource(using());
    const first = newCheckpointId();
    const [shared, own] = [await sealedLayer(first), await sealedLayer(first)];
    await sealWith([own, shared], first);
    const second = await sealWith([shared]);
    await store.remove(first);
    expect(await stored()).toEqual([shared.id]);
    await store.inspect(second);
    await store.remove(second);
    expect(await stored()).toEqual([]);
    expect(await listed(store)).toEqual([]);
  });

  it('keeps the layers that a sandbox has mounted', async () => {
    const id = newCheckpointId();
    const [used, unused] = [await sealedLayer(id), await sealedLayer(id)];
    await sealWith([used, unused], id);
    store.layerStore.addUsageSource(using(used.id));
    await store.remove(id);
    expect(await stored()).toEqual([used.id]);
  });

  it.each([
    ['no source of mounted layers is registered', undefined],
    ['a source cannot tell which layers are mounted', async () => undefined],
  ])('keeps all layers when %s, and finishes when it is known', async (_, source) => {
    const id = newCheckpointId();
    const layer = await sealedLayer(id);
    await sealWith([layer], id);
    const unregister = source === undefined ? () => {} : store.layerStore.addUsageSource(source);
    await store.remove(id);
    expect(await stored()).toEqual([layer.id]);
    expect(await listed(store)).toEqual([{ id, state: 'removing' }]);
    unregister();
    store.layerStore.addUsageSource(using());
    await store.remove(id);
    expect([await stored(), await listed(store)]).toEqual([[], []]);
  });

  it('leaves all layers while the claim of another checkpoint cannot be read', async () => {
    const id = newCheckpointId();
    const layer = await sealedLayer(id);
    await sealWith([layer], id);
    const other = await sealWith([await sealedLayer(newCheckpointId(), null)]);
    const claim = join(root, 'references', `${other}.json`);
    const text = await files.readFile(claim, 'utf8');
    await files.writeFile(claim, text.slice(0, 20));
    store = await openDirectoryStore({ root });
    store.layerStore.addUsageSource(using());
    await store.remove(id);
    expect(await stored()).toContain(layer.id);
    // After the repair the claim counts again, and the removal can be finished.
    await files.writeFile(claim, text);
    await store.remove(id);
    expect(await stored()).toHaveLength(1);
  });

  it('removes a checkpoint whose own claim cannot be read, and leaves its layers to the next sweep', async () => {
    const id = newCheckpointId();
    const layer = await sealedLayer(id);
    await sealWith([layer], id);
    await files.writeFile(join(root, 'references', `${id}.json`), '{');
    store = await openDirectoryStore({ root });
    store.layerStore.addUsageSource(using());
    await store.remove(id);
    expect([await stored(), await listed(store)]).toEqual([[layer.id], []]);
    await store.layerStore.sweep();
    expect(await stored()).toEqual([]);
  });

  it('removes the layers of a checkpoint that was never sealed', async () => {
    store.layerStore.addUsageSource(using());
    const id = newCheckpointId();
    await store.stage(id);
    await sealedLayer(id);
    await store.remove(id);
    expect(await stored()).toEqual([]);
    expect(await files.readdir(join(root, 'references'))).toEqual([]);
  });

  it('is shown as unfinished when only its claim is left, and can be repeated', async () => {
    const id = newCheckpointId();
    await sealWith([await sealedLayer(id)], id);
    await files.rm(join(root, 'sealed', id), { recursive: true });
    store = await openDirectoryStore({ root });
    store.layerStore.addUsageSource(using());
    expect(await listed(store)).toEqual([{ id, state: 'removing' }]);
    await store.remove(id);
    expect([await listed(store), await stored()]).toEqual([[], []]);
  });
});

describe('a sweep', () => {
  it('removes layers that no checkpoint claims and no sandbox has mounted, and nothing else', async () => {
    const { layers } = store.layerStore;
    const id = newCheckpointId();
    const claimed = await sealedLayer(id);
    await sealWith([claimed], id);
    const [used, open] = [await layers.create(), await layers.create()];
    const left = await sealedLayer(newCheckpointId(), null);
    await files.mkdir(join(root, 'layers', `making-lay_${'b'.repeat(20)}`));
    store.layerStore.addUsageSource(using(used));
    await store.layerStore.sweep();
    expect((await stored()).sort()).toEqual([claimed.id, used].sort());
    expect([left.id, open]).not.toContain(claimed.id);
  });

  it('keeps the layers of a sealed checkpoint without a claim, as after a restore by hand', async () => {
    const id = newCheckpointId();
    const layer = await sealedLayer(id);
    await sealWith([layer], id);
    await files.rm(join(root, 'references', `${id}.json`));
    store = await openDirectoryStore({ root });
    store.layerStore.addUsageSource(using());
    await store.layerStore.sweep();
    await store.inspect(id);
  });

  it('removes an open layer that only an unsealed checkpoint claims', async () => {
    const open = await store.layerStore.layers.create();
    await store.layerStore.claim(newCheckpointId(), { layers: [open], runsc: null });
    store.layerStore.addUsageSource(using());
    await store.layerStore.sweep();
    expect(await stored()).toEqual([]);
  });

  it('keeps the layers that claims of version 1 name', async () => {
    const [first, second] = [newCheckpointId(), newCheckpointId()];
    const layers = [await sealedLayer(first, null), await sealedLayer(second, null)];
    const owned = { layers: [layers[0]?.id], runsc: 'digest' };
    await files.writeFile(join(root, 'references', `${first}.json`), JSON.stringify(owned));
    await files.writeFile(join(root, 'references', `${second}.json`), JSON.stringify([layers[1]?.id]));
    store = await openDirectoryStore({ root });
    store.layerStore.addUsageSource(using());
    await store.layerStore.sweep();
    expect(await stored()).toHaveLength(2);
    const claims = layers.map(({ id }) => expect.objectContaining({ layers: [id] }));
    expect(await store.layerStore.claims()).toEqual(expect.arrayContaining(claims));
  });
});

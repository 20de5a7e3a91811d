import * as files from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LayerReference } from '@torpor/engine';
import { failureOf } from '@torpor/engine/testing';
import { LayerClaims, type LayerId } from '@torpor/layers';
import type { CheckpointId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { layerRetentionContract } from '../testing/layer-retention-contract.ts';
import { programRetentionContract } from '../testing/program-retention-contract.ts';
import type { RetentionSubject } from '../testing/retention-subject.ts';
import { manifestFor, newCheckpointId } from '../testing/small-checkpoint.ts';
import { type LayeredCheckpointStore, openDirectoryStore } from './directory-store.ts';

async function directorySubject(): Promise<RetentionSubject> {
  const top = await files.mkdtemp(join(tmpdir(), 'retention-'));
  const claimAt = (id: CheckpointId) => join(top, 'references', `${id}.json`);
  const sealedAt = (id: CheckpointId) => join(top, 'sealed', id);
  return {
    open: () => openDirectoryStore({ root: top }),
    damage: {
      replaceClaim: async (id, text) => {
        const before = await files.readFile(claimAt(id), 'utf8');
        await files.writeFile(claimAt(id), text);
        return before;
      },
      deleteClaim: (id) => files.rm(claimAt(id)),
      deleteManifest: (id) => files.rm(join(sealedAt(id), 'manifest.json')),
      deleteCheckpoint: (id) => files.rm(sealedAt(id), { recursive: true }),
      replaceProgramFile: async ({ kind, digest }, name, content) => {
        const program = join(top, 'programs', kind, digest);
        if (content === undefined) await files.rm(program, { recursive: true });
        else await files.writeFile(join(program, name), content);
      },
    },
    close: () => files.rm(top, { recursive: true, force: true }),
  };
}

layerRetentionContract('directory', directorySubject);
programRetentionContract('directory', directorySubject);

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
  if (claimedBy !== null) await store.layerStore.claim(claimedBy, { layers: [id], runsc: null, tools: null });
  const { nonce } = await layers.seal(id);
  return { id, nonce, owner };
}

/** A sealed checkpoint that has these layers and nothing else. */
async function sealWith(layers: readonly LayerReference[], id = newCheckpointId()): Promise<CheckpointId> {
  const staging = await store.stage(id);
  await store.layerStore.claim(id, {
    layers: layers.map((layer) => layer.id),
    runsc: 'digest',
    tools: 'digest',
  });
  const part = { name: 'layers', encoding: 'whole', top: [], layers } as const;
  await store.seal(staging, { ...manifestFor(id), contents: [part] });
  return id;
}

const stored = () => files.readdir(join(root, 'layers'));
const nothingInUse = async () => new Set<LayerId>();

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

describe('a sweep', () => {
  it('removes the rest of a layer whose creation was interrupted', async () => {
    await files.mkdir(join(root, 'layers', `making-lay_${'b'.repeat(20)}`));
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
    store.layerStore.addUsageSource(nothingInUse);
    await store.layerStore.sweep();
    expect(await stored()).toHaveLength(2);
    const claims = layers.map(({ id }) => expect.objectContaining({ layers: [id] }));
    const read = await LayerClaims.open(join(root, 'references'));
    expect(read.all()).toEqual(expect.arrayContaining(claims));
  });
});

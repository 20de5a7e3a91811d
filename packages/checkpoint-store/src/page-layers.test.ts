/** Layers that belong to the memory of a checkpoint: damage to them is damage to the memory, never to the files. */
import { mkdir, mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ContentSelection, LayerReference } from '@torpor/engine';
import { failureOf } from '@torpor/engine/testing';
import type { LayerId } from '@torpor/layers';
import type { CheckpointId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { manifestFor, newCheckpointId } from '../testing/index.ts';
import { copyCheckpoint, copyTree, storeAt } from './backup.ts';
import { type LayeredCheckpointStore, openDirectoryStore } from './directory-store.ts';

const MEMORY: ContentSelection = { how: 'only', names: ['memory'] };
const FILES: ContentSelection = { how: 'except', names: ['memory'] };
const { signal } = new AbortController();

let top: string;
let store: LayeredCheckpointStore;

beforeEach(async () => {
  top = await mkdtemp(join(tmpdir(), 'torpor-pages-'));
  store = await openDirectoryStore({ root: top });
  store.layerStore.addUsageSource(async () => new Set());
});
afterEach(() => rm(top, { recursive: true }));

const pathOf = (id: LayerId, name: string) => join(store.layerStore.layers.path(id), name);

async function sealedLayer(owner: CheckpointId, name: string, text: string): Promise<LayerReference> {
  const { layers } = store.layerStore;
  const id = await layers.create();
  await writeFile(pathOf(id, name), text);
  const { nonce } = await layers.seal(id, signal, { recordsSizes: true });
  return { id, nonce, owner };
}

/** A checkpoint with one layer of files, and page layers: its own and those of the checkpoint before. */
async function sealed(before: readonly LayerReference[] = []) {
  const id = newCheckpointId();
  const staging = await store.stage(id);
  await mkdir(join(staging.path, 'memory'));
  await writeFile(join(staging.path, 'memory', 'index'), 'index');
  const [files, own] = [
    await sealedLayer(id, 'a', 'files'),
    await sealedLayer(id, 'pages', 'x'.repeat(9_000)),
  ];
  const pages = [own, ...before];
  const layers = [files, ...pages].map((layer) => layer.id);
  await store.layerStore.claim(id, { layers, runsc: null, tools: null });
  const contents = [
    { name: 'memory', encoding: 'packed', top: ['memory'], layers: pages },
    { name: 'layers', encoding: 'whole', top: [], layers: [files] },
  ] as const;
  const { bytes } = await store.seal(staging, { ...manifestFor(id), contents });
  return { id, files, own, pages, bytes };
}

describe('the page layers of a checkpoint', () => {
  it('count for the checkpoint that brings them', async () => {
    const first = await sealed();
    const second = await sealed(first.pages);
    expect(first.bytes).toBeGreaterThanOrEqual(9_000);
    expect(second.bytes).toBe(first.bytes);
  });

  it.each([
    ['missing', (path: string) => rm(path)],
    ['cut short', (path: string) => truncate(path, 5)],
  ])('are part of its memory: files are not affected when one is %s', async (_, damage) => {
    const { id, own } = await sealed();
    await damage(pathOf(own.id, 'pages'));
    for (const selection of [MEMORY, undefined]) {
      const failure = await failureOf(store.inspect(id, signal, selection));
      expect(failure.code).toMatch(/^checkpoint_(missing|corrupt)$/);
      expect(failure.details).toMatchObject({ entry: 'memory', layerId: own.id });
    }
    await store.inspect(id, signal, FILES);
    await store.verify(id, signal, FILES);
  });

  it('are verified with every checkpoint that uses them, because the first one may be gone', async () => {
    const first = await sealed();
    const second = await sealed(first.pages);
    await store.verify(second.id);
    await store.remove(first.id);
    await writeFile(pathOf(first.own.id, 'pages'), 'y'.repeat(9_000));
    const failure = await failureOf(store.verify(second.id, signal, MEMORY));
    expect(failure).toMatchObject({
      code: 'checkpoint_corrupt',
      details: { entry: 'memory', layerId: first.own.id },
    });
    await store.verify(second.id, signal, FILES);
  });

  it('are no part of the content, which a backup copies and verifies without layers', async () => {
    const first = await sealed();
    const second = await sealed(first.pages);
    const backup = await storeAt(join(top, 'backup'));
    const copied = await copyCheckpoint(second.id, { root: top, store }, backup, signal);
    expect(copied.layers.map(({ id }) => id).sort()).toEqual(
      [second.files, second.own, first.own].map(({ id }) => id).sort(),
    );
  });

  it('are marked as damaged by a verification, until a later verification finds no damage', async () => {
    const { layers } = store.layerStore;
    const { id, own } = await sealed();
    await store.verify(id);
    const [pages, copy] = [pathOf(own.id, 'pages'), join(top, 'copy')];
    await copyTree(pages, copy);
    await writeFile(pages, 'y'.repeat(9_000));
    await failureOf(store.verify(id));
    expect(await layers.isKnownDamaged(own.id)).toBe(true);
    await copyTree(copy, pages);
    await store.verify(id);
    expect(await layers.isKnownDamaged(own.id)).toBe(false);
  });

  it('go too when all checkpoints that use them are removed at the same time', async () => {
    const first = await sealed();
    const second = await sealed(first.pages);
    await Promise.all([store.remove(first.id), store.remove(second.id)]);
    const left: string[] = [];
    for await (const { id } of store.layerStore.layers.list()) left.push(id);
    expect(left).toEqual([]);
  });

  it('stay as long as any checkpoint uses them, and go with the last one', async () => {
    const { layers } = store.layerStore;
    const first = await sealed();
    const second = await sealed(first.pages);
    await store.remove(first.id);
    await layers.inspect(first.own.id, first.own.nonce);
    expect((await failureOf(layers.inspect(first.files.id))).code).toBe('checkpoint_missing');
    await store.remove(second.id);
    expect((await failureOf(layers.inspect(first.own.id))).code).toBe('checkpoint_missing');
  });
});

/** Checkpoints of real sandboxes that share the pages of their memory. */
import { open, stat, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import type { Instance, LayerReference, MemoryForm, SealedCheckpoint } from '@torpor/engine';
import { nextOf, paused, sealing, startFrom, unhurried } from '@torpor/engine/testing';
import { DEFAULT_RUNTIME_SETTINGS } from '@torpor/runtime-shared';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../testing/gvisor-world.ts';
import { pageLayersOf } from '../testing/page-layers.ts';
import { needsOf } from './checkpoint-needs.ts';

/** Without a change of size or time. */
async function alterByte(path: string): Promise<void> {
  const file = await open(path, 'r+');
  const byte = Buffer.alloc(1);
  await file.read(byte, 0, 1, 50);
  await file.write(Buffer.from([(byte[0] ?? 0) ^ 1]), 0, 1, 50);
  await file.close();
}

const why = await whyNoGvisor();

describe.skipIf(why !== null)('the memory of a gVisor checkpoint', () => {
  let world: GvisorWorld;
  beforeAll(async () => {
    // Every wake reads the image.
    world = await makeGvisorWorld({ settings: { ...DEFAULT_RUNTIME_SETTINGS, warmKeepMs: 0 } });
  }, 120_000);
  afterEach(() => world.dispose());
  afterAll(() => world?.close(), 120_000);

  const pagesOf = (checkpoint: SealedCheckpoint) => needsOf(checkpoint).pages;
  const idsOf = (layers: readonly LayerReference[]) => layers.map(({ id }) => id);
  const bytesOf = async ({ id }: LayerReference) =>
    (await stat(join(world.store.layerStore.layers.path(id), 'pages.zst'))).size;

  async function counts(instance: Instance): Promise<number> {
    await world.program.write(instance, '/home/user/file', 'text');
    return (await world.program.counter?.(instance)) ?? 0;
  }

  async function captured(instance: Instance, memoryForm: MemoryForm): Promise<SealedCheckpoint> {
    await world.runtime.presync(instance, unhurried);
    await world.runtime.freeze(instance, unhurried);
    const asleep = await sealing(world, (staging) =>
      world.runtime.capture(instance, 'memory', { ...staging, memoryForm }, unhurried),
    );
    await world.runtime.destroy(instance, unhurried);
    return asleep;
  }

  /** Without the unpacked copy, so that a start puts the pages together. */
  async function woken(instance: Instance, checkpoint: SealedCheckpoint): Promise<Instance> {
    const next = nextOf(instance);
    await world.runtime.releasePrepared?.(checkpoint.id);
    expect(await startFrom(world, next, checkpoint, 'memory')).toEqual({ mode: 'memory', lost: [] });
    return next;
  }

  it('has only the pages that changed since the sandbox was started, and a wake puts them together', async () => {
    const template = await world.sharedTemplate();
    const first = await world.started();
    const one = await counts(first);
    const asleep = await paused(world, first, 'memory');
    expect(idsOf(pagesOf(asleep))).toContain(pagesOf(template)[0]?.id);

    const second = await woken(first, asleep);
    expect(await world.program.counter?.(second)).toBe(one);
    const two = await counts(second);
    const again = await paused(world, second, 'memory');
    const [own, ...below] = pagesOf(again);
    expect(idsOf(below)).toContain(pagesOf(asleep)[0]?.id);
    const [ofTemplate] = pagesOf(template);
    if (own === undefined || ofTemplate === undefined) throw new Error('There are no page layers.');
    expect(await bytesOf(own)).toBeLessThan((await bytesOf(ofTemplate)) / 2);

    const third = await woken(second, again);
    expect(await world.program.counter?.(third)).toBe(two);
  }, 60_000);

  it('can be restored after the checkpoints whose pages it uses were removed', async () => {
    const first = await world.started();
    await counts(first);
    const asleep = await paused(world, first, 'memory');
    const second = await woken(first, asleep);
    // While the sandbox runs its next checkpoint may need the pages, and no checkpoint claims them.
    await world.store.remove(asleep.id);
    const counted = await counts(second);
    const again = await paused(world, second, 'memory');
    expect(idsOf(pagesOf(again))).toContain(pagesOf(asleep)[0]?.id);
    await world.store.verify(again.id);

    const third = await woken(second, again);
    expect(await world.program.counter?.(third)).toBe(counted);
    await world.runtime.destroy(third, unhurried);
    await world.store.remove(again.id);
    const left: string[] = [];
    for await (const { id } of world.store.layerStore.layers.list()) left.push(id);
    for (const id of idsOf([...pagesOf(asleep), ...pagesOf(again)]))
      if (!idsOf(pagesOf(await world.sharedTemplate())).includes(id)) expect(left).not.toContain(id);
  }, 60_000);

  it.each([
    ['is too short', (pages: string) => truncate(pages, 100)],
    ['was found damaged by a verification', (pages: string) => alterByte(pages)],
  ])(
    'stores pages again whose layer %s meanwhile',
    async (_, damage) => {
      const first = await world.started();
      const counted = await counts(first);
      const asleep = await paused(world, first, 'memory');
      await world.store.verify(asleep.id);
      const second = await woken(first, asleep);
      const [own = ''] = await pageLayersOf(asleep);
      await damage(join(own, 'pages.zst'));
      await expect(world.store.verify(asleep.id)).rejects.toMatchObject({ code: 'checkpoint_corrupt' });
      const again = await paused(world, second, 'memory');
      expect(idsOf(pagesOf(again))).not.toContain(pagesOf(asleep)[0]?.id);
      expect(await world.program.counter?.(await woken(second, again))).toBe(counted);
    },
    60_000,
  );

  it('has all pages in its content while a server of an earlier version may start it', async () => {
    const first = await world.started();
    const counted = await counts(first);
    const asleep = await captured(first, 'whole');
    expect(pagesOf(asleep)).toEqual([]);
    expect((await stat(join(asleep.path ?? '', 'memory', 'pages.img.zst'))).size).toBeGreaterThan(0);
    expect(await world.program.counter?.(await woken(first, asleep))).toBe(counted);
  }, 60_000);
});

/** A data directory of version 1, with sandboxes that sleep and one that runs, under a server that adopts it. */
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { makeVersion1 } from '@torpor/checkpoint-store/testing';
import type { Instance, SealedCheckpoint } from '@torpor/engine';
import { nextOf, paused, startFrom, unhurried } from '@torpor/engine/testing';
import { isId } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../testing/gvisor-world.ts';
import { needsOf } from './checkpoint-needs.ts';

const why = await whyNoGvisor();

describe.skipIf(why !== null)('a data directory of version 1', () => {
  let world: GvisorWorld;
  beforeAll(async () => {
    world = await makeGvisorWorld();
  }, 120_000);
  afterAll(async () => {
    await world?.dispose();
    await world?.close();
  }, 120_000);

  /** What the previous version had at these places: layers and owners below `gvisor`, manifests of version 1. */
  async function makeLayoutOfVersion1(checkpoints: readonly SealedCheckpoint[]): Promise<void> {
    const gvisor = join(world.dataDir, 'gvisor');
    const store = join(world.dataDir, 'checkpoints');
    await rm(join(gvisor, 'layers'), { force: true });
    await rename(join(store, 'layers'), join(gvisor, 'layers'));
    await rm(join(store, 'references'), { recursive: true });
    await mkdir(join(gvisor, 'owned'));
    for (const checkpoint of checkpoints) {
      const { layers, runsc } = needsOf(checkpoint);
      const own = layers.filter(({ owner }) => owner === checkpoint.id).map(({ id }) => id);
      await writeFile(join(gvisor, 'owned', `${checkpoint.id}.json`), JSON.stringify({ layers: own, runsc }));
    }
    for (const id of await readdir(join(store, 'sealed')))
      if (isId('ckpt', id)) await makeVersion1(store, id);
  }

  it('wakes every sleeper with its memory, and its running sandbox runs on', async () => {
    const checkpoints = [await world.sharedTemplate()];
    const sleepers: { instance: Instance; asleep: SealedCheckpoint; counted: number }[] = [];
    for (const name of ['first', 'second']) {
      let instance = await world.started();
      // Twice asleep, so that the stack has layers of two checkpoints.
      for (const round of [1, 2]) {
        await world.program.write(instance, `/home/user/${round}`, name);
        const counted = (await world.program.counter?.(instance)) ?? 0;
        const asleep = await paused(world, instance, 'memory');
        checkpoints.push(asleep);
        await world.runtime.destroy(instance, unhurried);
        if (round === 2) sleepers.push({ instance, asleep, counted });
        instance = nextOf(instance);
        if (round === 1) await startFrom(world, instance, asleep, 'memory');
      }
    }
    const awake = await world.started();
    await world.program.write(awake, '/home/user/a', 'before');
    await world.whileClosed(() => makeLayoutOfVersion1(checkpoints));

    expect(await readFile(join(world.dataDir, 'gvisor', 'layers'), 'utf8')).toContain('checkpoints/layers');
    for (const { instance, asleep, counted } of sleepers) {
      await world.store.verify(asleep.id);
      const next = nextOf(instance);
      expect(await startFrom(world, next, asleep, 'memory')).toEqual({ kind: 'memory', lost: [] });
      expect(await world.program.counter?.(next)).toBe(counted);
      expect(await world.program.read(next, '/home/user/1')).toBeDefined();
    }
    expect(await world.program.read(awake, '/home/user/a')).toBe('before');
    await world.program.write(awake, '/home/user/b', 'after');
    const counted = await world.program.counter?.(awake);
    const asleep = await paused(world, awake, 'memory');
    await world.runtime.destroy(awake, unhurried);
    const woken = nextOf(awake);
    expect(await startFrom(world, woken, asleep, 'memory')).toEqual({ kind: 'memory', lost: [] });
    expect(await world.program.counter?.(woken)).toBe(counted);
    expect(await world.program.read(woken, '/home/user/b')).toBe('after');
  }, 180_000);
});

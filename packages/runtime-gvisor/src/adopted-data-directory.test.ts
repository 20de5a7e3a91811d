/** A data directory of version 1, with sandboxes that sleep and one that runs, under a server that adopts it. */
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { makeVersion1 } from '@torpor/checkpoint-store/testing';
import type { Instance, SealedCheckpoint } from '@torpor/engine';
import { nextOf, paused, startFrom, unhurried } from '@torpor/engine/testing';
import { isId } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../testing/gvisor-world.ts';
import { keepPagesInContent } from '../testing/pages-in-content.ts';
import { needsOf } from './checkpoint-needs.ts';
import { InstanceFiles } from './instance/instance-files.ts';

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

  /** What version 1 had at these places: layers, owners and programs below `gvisor`, manifests of version 1. */
  async function makeLayoutOfVersion1(
    checkpoints: readonly SealedCheckpoint[],
    running: Instance,
  ): Promise<void> {
    const gvisor = join(world.dataDir, 'gvisor');
    const store = join(world.dataDir, 'checkpoints');
    for (const checkpoint of checkpoints) await keepPagesInContent(checkpoint);
    await rename(join(store, 'programs', 'runsc'), join(gvisor, 'runsc'));
    await rename(join(store, 'programs', 'tools'), join(gvisor, 'guest'));
    const record = new InstanceFiles(join(gvisor, 'instances')).paths(running).record;
    const text = await readFile(record, 'utf8');
    await writeFile(record, text.replace(join(store, 'programs', 'runsc'), join(gvisor, 'runsc')));
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
    await world.whileClosed(() => makeLayoutOfVersion1(checkpoints, awake));
    expect(world.recordOf(awake).container.runsc?.program).toContain('/gvisor/runsc/');

    expect(await readFile(join(world.dataDir, 'gvisor', 'layers'), 'utf8')).toContain('checkpoints/layers');
    for (const { instance, asleep, counted } of sleepers) {
      await world.store.verify(asleep.id);
      const next = nextOf(instance);
      expect(await startFrom(world, next, asleep, 'memory')).toEqual({ mode: 'memory', lost: [] });
      expect(await world.program.counter?.(next)).toBe(counted);
      expect(await world.program.read(next, '/home/user/1')).toBeDefined();
    }
    expect(await world.program.read(awake, '/home/user/a')).toBe('before');
    await world.program.write(awake, '/home/user/b', 'after');
    const counted = await world.program.counter?.(awake);
    const asleep = await paused(world, awake, 'memory');
    await world.runtime.destroy(awake, unhurried);
    const woken = nextOf(awake);
    expect(await startFrom(world, woken, asleep, 'memory')).toEqual({ mode: 'memory', lost: [] });
    expect(await world.program.counter?.(woken)).toBe(counted);
    expect(await world.program.read(woken, '/home/user/b')).toBe('after');
  }, 180_000);

  it('is rid of tools that nothing uses when the next server starts, but not of tools that are mounted', async () => {
    await world.started();
    const { programs } = world.store.layerStore;
    const current = await programs.list('tools');
    const [unused, mounted] = ['c'.repeat(64), 'd'.repeat(64)];
    await world.whileClosed(async () => {
      for (const digest of [unused, mounted]) {
        const directory = programs.path({ kind: 'tools', digest });
        await mkdir(directory);
        await writeFile(join(directory, 'manifest.json'), '{}');
      }
      const mountPoint = join(world.dataDir, 'gvisor', 'view', 'mounted');
      await mkdir(mountPoint, { recursive: true });
      const source = programs.path({ kind: 'tools', digest: mounted });
      await world.inNamespace('mount', '-o', 'bind,ro', source, mountPoint);
    });
    expect(await programs.list('tools')).toEqual([...current, mounted].sort());
  }, 60_000);

  it('says of memory whose tools are missing why it cannot be restored', async () => {
    const template = await world.sharedTemplate();
    const tools = world.store.layerStore.programs.path({ kind: 'tools', digest: needsOf(template).tools });
    await rename(tools, `${tools}-away`);
    const verdict = await world.runtime.checkUsable(template, unhurried);
    await rename(`${tools}-away`, tools);
    expect(verdict).toEqual({ usable: false, why: 'the tools that ran in it are no longer kept' });
    expect(await world.runtime.checkUsable(template, unhurried)).toEqual({ usable: true });
  }, 60_000);
});

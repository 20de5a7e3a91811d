import { mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Instance } from '@torpor/engine';
import { nextOf, paused, startFrom, unhurried } from '@torpor/engine/testing';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../../testing/gvisor-world.ts';

const why = await whyNoGvisor();

describe.skipIf(why !== null)('pooled host resources', { timeout: 120_000 }, () => {
  let world: GvisorWorld;

  beforeAll(async () => {
    world = await makeGvisorWorld({ warmPoolSize: 0, hostResourcePoolSize: 2 });
  }, 120_000);
  afterAll(() => world?.close(), 60_000);

  const unassignedNumbers = () => readdir(join(world.dataDir, 'gvisor', 'berths'));

  it('are used by a start without a pre-created container, made again, and removed when the server closes', async () => {
    const instance = await world.started();
    const { container: first } = world.recordOf(instance);
    const pooled = async () => (await unassignedNumbers()).filter((number) => !first.id.endsWith(number));
    await vi.waitFor(async () => expect(await pooled()).toHaveLength(2), { timeout: 10_000 });
    const before = await pooled();
    await world.program.write(instance, '/home/user/a', 'a');
    const checkpoint = await paused(world, instance, 'memory');
    await world.runtime.destroy(instance, unhurried);

    const next = nextOf(instance);
    await startFrom(world, next, checkpoint, 'memory');

    expect(await world.program.counter?.(next)).toBe(1);
    const { container } = world.recordOf(next);
    const [taken] = before.filter((number) => container.id.endsWith(number));
    expect(taken).toBeDefined();
    await vi.waitFor(async () => expect(await unassignedNumbers()).toHaveLength(3), { timeout: 10_000 });

    await world.reopen();
    expect(await unassignedNumbers()).toEqual([taken]);
    expect(await world.runtime.observe(next, unhurried)).toEqual({ is: 'running' });
    await world.dispose();
    expect(await unassignedNumbers()).toEqual([]);
  });

  const instanceDirectory = ({ sandboxId, generation }: Instance) =>
    join(world.dataDir, 'gvisor', 'instances', sandboxId, String(generation));
  const layers = () => readdir(join(world.dataDir, 'checkpoints', 'layers'));

  /** A paused sandbox, with two pooled resources ready for its next generation. */
  async function asleep() {
    const instance = await world.started();
    const checkpoint = await paused(world, instance, 'memory');
    await world.runtime.destroy(instance, unhurried);
    await vi.waitFor(async () => expect(await unassignedNumbers()).toHaveLength(2), { timeout: 10_000 });
    return { next: nextOf(instance), checkpoint };
  }

  it('are torn down when the record of the start cannot be written, and so is the new layer', async () => {
    const { next, checkpoint } = await asleep();
    const [before, pooled] = [await layers(), await unassignedNumbers()];
    // Makes writing the record fail.
    await mkdir(join(instanceDirectory(next), 'instance.json.tmp'), { recursive: true });
    await expect(startFrom(world, next, checkpoint, 'memory')).rejects.toThrow();
    expect(await layers()).toEqual(before);
    expect((await unassignedNumbers()).filter((number) => pooled.includes(number))).toHaveLength(1);
    await world.runtime.destroy(next, unhurried);
    const again = nextOf(next);
    await startFrom(world, again, checkpoint, 'memory');
    expect(await world.runtime.observe(again, unhurried)).toEqual({ is: 'running' });
    await world.runtime.destroy(again, unhurried);
  });
});

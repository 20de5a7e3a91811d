/** What programs inside a sandbox read of its limits, after each way to start it. */
import { availableParallelism } from 'node:os';
import type { Instance } from '@torpor/engine';
import { NO_SPEC, newInstance, nextOf, paused, startFrom, unhurried } from '@torpor/engine/testing';
import { type Resources, visibleProcessors } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../../testing/gvisor-world.ts';
import { withDefaults } from './default-limits.ts';

const why = await whyNoGvisor();
const SLOW = 120_000;
const MIB = 1024 * 1024;

/** Each line: what was asked, then the answer. */
const READ = `
echo nproc $(nproc)
echo nproc --all $(nproc --all)
echo cpuinfo $(grep -c ^processor /proc/cpuinfo)
echo cores $(awk '/^cpu cores/ { print $4; exit }' /proc/cpuinfo)
echo online $(getconf _NPROCESSORS_ONLN)
echo free $(free -m | awk '/^Mem:/ { print $2 }')
echo meminfo $(awk '/^MemTotal:/ { print $2 / 1024 }' /proc/meminfo)
echo sysinfo $(( $(getconf _PHYS_PAGES) * $(getconf PAGE_SIZE) / ${MIB} ))`;

describe.skipIf(why !== null)('programs inside a sandbox read', { timeout: SLOW }, () => {
  let world: GvisorWorld;
  beforeAll(async () => {
    world = await makeGvisorWorld();
  }, SLOW);
  afterAll(async () => {
    await world?.dispose();
    await world?.close();
  }, SLOW);

  /** Compares what programs read with the limits, and the metrics of the agent with both. */
  async function expectVisible(instance: Instance, resources: Resources): Promise<void> {
    const processors = visibleProcessors(resources, availableParallelism());
    const { memoryMb } = withDefaults(resources);
    const { output } = await world.run(instance, READ);
    expect(output.trim().split('\n')).toEqual([
      ...['nproc', 'nproc --all', 'cpuinfo', 'cores', 'online'].map((what) => `${what} ${processors}`),
      ...['free', 'meminfo', 'sysinfo'].map((what) => `${what} ${memoryMb}`),
    ]);
    const metrics = await (await world.agent(instance)).metrics();
    expect(metrics).toMatchObject({ cpuCount: processors, memTotal: memoryMb * MIB });
  }

  const SMALL: Resources = { memoryMb: 300, cpus: 0.5 };

  it('the default limits when it has none of its own', async () => {
    await expectVisible(await world.started(), {});
  });

  it('its limits, also after a pause, in a fork, and without memory', async () => {
    const first = await world.started({ resources: SMALL });
    await expectVisible(first, SMALL);
    // The container of the next start is created while this one is destroyed, and has to show the same.
    const checkpoint = await paused(world, first, 'memory');
    const second = await world.started({ resources: SMALL }, checkpoint, nextOf(first));
    await expectVisible(second, SMALL);
    const fork = await world.started({ resources: SMALL }, checkpoint, newInstance());
    await expectVisible(fork, SMALL);
    const files = await paused(world, second, 'files');
    const third = nextOf(second);
    await startFrom(world, third, files, 'files', { ...NO_SPEC, resources: SMALL });
    await expectVisible(third, SMALL);
  });

  it('new limits after a start with other limits than it was paused with', async () => {
    const first = await world.started({ resources: SMALL });
    const checkpoint = await paused(world, first, 'memory');
    const larger: Resources = { memoryMb: 700 };
    const second = await world.started({ resources: larger }, checkpoint, nextOf(first));
    await expectVisible(second, larger);
  });

  it('no more processors than the machine has', async () => {
    const many: Resources = { cpus: 1_000 };
    await expectVisible(await world.started({ resources: many }), many);
  });

  it('the disk that the agent reports, while the runtime knows the limit and what counts towards it', async () => {
    const instance = await world.started({ resources: { diskMb: 100 } });
    await world.run(instance, 'head -c 20M /dev/urandom > kept');
    const checkpoint = await paused(world, instance, 'memory');
    const next = await world.started({ resources: { diskMb: 100 } }, checkpoint, nextOf(instance));
    await world.run(next, 'head -c 10M /dev/urandom > more');
    const { usedBytes = 0, limitBytes } = (await world.runtime.diskUsage?.(next, unhurried)) ?? {};
    const agent = await world.agent(next);
    // Other programs of the machine write to the disk too, so the figures may change between the two readings.
    await vi.waitFor(async () => {
      const shown = await world.run(next, 'df -B1M --output=size,used,avail / | tail -1');
      const { diskTotal, diskUsed, diskFree = 0 } = await agent.metrics();
      const reported = [diskTotal, diskUsed, diskFree].map((bytes) => Math.ceil(bytes / MIB));
      expect(shown.output.trim().split(/\s+/).map(Number)).toEqual(reported);
    }, 30_000);
    expect(limitBytes).toBe(100 * MIB);
    expect(usedBytes).toBeGreaterThan(30 * MIB);
    expect(usedBytes).toBeLessThan(40 * MIB);
  });
});

/** The disk limit of a sandbox on file systems with project quotas. */
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Instance } from '@torpor/engine';
import { NO_SPEC, newInstance, nextOf, paused, startFrom, unhurried } from '@torpor/engine/testing';
import { type LoopDisk, loopDiskRefusal, mountLoopDisk } from '@torpor/layers/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../../testing/gvisor-world.ts';

const noGvisor = await whyNoGvisor();
const SLOW = 300_000;
const MIB = 1024 * 1024;
const DISKS: readonly LoopDisk[] = ['xfs with project quotas', 'ext4 with project quotas'];
const RESOURCES = { diskMb: 100 };
const LIMIT = RESOURCES.diskMb * MIB;

describe.each(
  DISKS.map((disk) => {
    const why = noGvisor ?? loopDiskRefusal(disk);
    return { disk, why, what: disk + (why ? ` (${why})` : '') };
  }),
)('a sandbox on $what', { timeout: SLOW }, ({ disk, why }) => {
  let world: GvisorWorld;
  let top: string;
  beforeAll(async () => {
    if (why !== undefined) return;
    top = await realpath(await mkdtemp(join(tmpdir(), 'torpor-quota-')));
    await mkdir(join(top, 'disk'));
    mountLoopDisk(disk, join(top, 'file'), join(top, 'disk'), 2_000);
    await mkdir(join(top, 'disk', 'data'));
    world = await makeGvisorWorld({ dataDir: join(top, 'disk', 'data') });
  }, SLOW);
  afterAll(async () => {
    await world?.dispose();
    await world?.close();
    if (top === undefined) return;
    execFileSync('umount', [join(top, 'disk')]);
    await rm(top, { recursive: true });
  }, SLOW);

  const output = async (instance: Instance, command: string) =>
    (await world.run(instance, command, 'root')).output.trim();
  const fill = (file: string, megabytes: number) =>
    `dd if=/dev/zero of=${file} bs=1M count=${megabytes} 2>&1; sync; true`;

  /** What `df` inside, the agent and the runtime say; each in bytes. */
  async function disks(instance: Instance) {
    const [size, used] = (await output(instance, 'df -B1 --output=size,used / | tail -1')).split(/\s+/);
    const { diskTotal, diskUsed } = await (await world.agent(instance)).metrics();
    const outside = await world.runtime.diskUsage?.(instance, unhurried);
    return {
      inside: { limitBytes: Number(size), usedBytes: Number(used) },
      agent: { limitBytes: Number(diskTotal), usedBytes: Number(diskUsed) },
      outside,
    };
  }
  async function expectAgreement(instance: Instance, most: number): Promise<void> {
    const { inside, agent, outside } = await disks(instance);
    expect(inside).toEqual(outside);
    expect(agent).toEqual(outside);
    expect(outside?.limitBytes).toBe(most);
  }

  it.skipIf(why !== undefined)(
    'is refused what exceeds its limit and goes on; all figures agree, also after pauses',
    async () => {
      const first = await world.started({ resources: RESOURCES });
      expect(await output(first, fill('/kept', 30))).toContain('copied');
      await expectAgreement(first, LIMIT);
      expect(await output(first, fill('/much', 100))).toMatch(/No space left on device|Disk quota exceeded/);
      expect(
        await output(first, 'rm /much; mkdir /a && touch /a/b && mv /a /c && ls /c; ln /kept /linked'),
      ).toBe('b');
      expect(await world.runtime.observe(first, unhurried)).toEqual({ is: 'running' });

      const checkpoint = await paused(world, first, 'memory');
      const second = await world.started({ resources: RESOURCES }, checkpoint, nextOf(first));
      expect(
        await output(second, 'mv /c /d && mv /kept /moved && rm /linked && ls /d && wc -c < /moved'),
      ).toBe(`b\n${30 * MIB}`);
      expect(await output(second, fill('/more', 20))).toContain('copied');
      await expectAgreement(second, LIMIT);

      const fork = await world.started({ resources: RESOURCES }, checkpoint, newInstance());
      const { inside, outside } = await disks(fork);
      expect(outside?.limitBytes).toBe(LIMIT);
      expect(inside.limitBytes - inside.usedBytes).toBe(LIMIT - (outside?.usedBytes ?? 0));
      await world.runtime.destroy(fork, unhurried);

      await world.reopen();
      await expectAgreement(second, LIMIT);
      const files = await paused(world, second, 'files');
      const third = nextOf(second);
      await startFrom(world, third, files, 'files', { ...NO_SPEC, resources: RESOURCES });
      await expectAgreement(third, LIMIT);
    },
  );

  it.skipIf(why !== undefined)(
    'that has used up its limit can be paused, resumed and cleaned up',
    async () => {
      const first = await world.started({ resources: RESOURCES });
      await output(first, fill('/much', 120));
      const checkpoint = await paused(world, first, 'memory');
      const second = await world.started({ resources: RESOURCES }, checkpoint, nextOf(first));
      expect(await output(second, 'rm /much; echo text > /small; cat /small')).toBe('text');
    },
  );

  it.skipIf(why !== undefined)('is refused more files than its limit has room for', async () => {
    const instance = await world.started({ resources: { diskMb: 8 } });
    const many =
      'mkdir /n; i=0; while [ $i -lt 4000 ]; do : > /n/$i || break; i=$((i+1)); done 2>/dev/null; ls /n | wc -l';
    expect(Number(await output(instance, many))).toBeLessThan((8 * MIB) / 4096);
    expect(await output(instance, 'rm -r /n; echo text > /small; cat /small')).toBe('text');
  });
});

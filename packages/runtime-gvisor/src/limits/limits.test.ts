/** What happens to a sandbox that exceeds its limits; other sandboxes are not affected. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Instance, Observation } from '@torpor/engine';
import { NO_SPEC, nextOf, paused, sealing, startFrom, unhurried } from '@torpor/engine/testing';
import type { Resources } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../../testing/gvisor-world.ts';
import { findCgroups } from '../container/cgroups.ts';
import { serverTag } from '../instance/instance-names.ts';

const why = await whyNoGvisor();
const SLOW = 120_000;
const PATIENT = { timeout: 30_000, interval: 100 };

describe.skipIf(why !== null)('a sandbox with limits', { timeout: SLOW }, () => {
  let world: GvisorWorld;
  let neighbour: Instance;
  beforeAll(async () => {
    world = await makeGvisorWorld();
    neighbour = await world.started();
  }, SLOW);
  afterAll(async () => {
    await world?.dispose();
    await world?.close();
  }, SLOW);

  const started = (resources: Resources) => world.started({ resources });
  const output = async (instance: Instance, command: string, user?: string) =>
    (await world.run(instance, command, user)).output.trim();
  const observed = (instance: Instance) => world.runtime.observe(instance, unhurried);
  const expectGoodNeighbours = async () => expect(await output(neighbour, 'echo here')).toBe('here');

  /** Runs a command that makes the runtime end the sandbox, and resolves with the observation of the ended instance. */
  async function ended(instance: Instance, command: string, user?: string): Promise<Observation> {
    const broken = world.run(instance, command, user).then(
      ({ output: said }) => `the command ended: ${said}`,
      () => 'broken off',
    );
    await expect.poll(async () => (await observed(instance)).is, PATIENT).toBe('gone');
    await expectGoodNeighbours();
    // The caller that waits for the command gets an error at once, not a timeout.
    expect(await broken).toBe('broken off');
    return observed(instance);
  }

  describe('on processes', () => {
    /** Starts this many processes that sleep. */
    const many = (count: number) =>
      `i=0; while [ $i -lt ${count} ]; do sleep 1000 >/dev/null 2>&1 & i=$((i+1)); done; echo all of them`;

    it('cannot fork beyond the limit, goes on, and can be cleaned up', async () => {
      const instance = await started({ processes: 40 });
      const { output: said, exitCode } = await world.run(instance, many(300));
      expect(said).toMatch(/Cannot fork|Resource temporarily unavailable/);
      expect(exitCode).not.toBe(0);
      const sleeping = Number(await output(instance, 'pgrep -c sleep', 'root'));
      expect(sleeping).toBeGreaterThan(20);
      expect(sleeping).toBeLessThanOrEqual(40);
      await expectGoodNeighbours();
      // The agent still works, also for files.
      const agent = await world.agent(instance);
      await agent.files.write('/home/user/full', 'text');
      expect(await output(instance, 'cat /home/user/full | cat', 'root')).toBe('text');
      // Processes that the agent starts do not count, so that a user can always kill the others.
      await output(instance, 'kill -KILL -1 2>/dev/null');
      await expect.poll(() => output(instance, 'echo one | cat'), PATIENT).toBe('one');
      expect(await observed(instance)).toEqual({ is: 'running' });
    });

    it('gets the new limit at its next start', async () => {
      const instance = await started({ processes: 40 });
      const most = `awk '/^Max processes/ { print $3 }' /proc/self/limits`;
      const limit = async (sandbox: Instance) => output(sandbox, `bash -c 'ulimit -u' || ${most}`);
      expect(await limit(instance)).toBe('40');
      const checkpoint = await paused(world, instance, 'memory');
      const next = nextOf(instance);
      await startFrom(world, next, checkpoint, 'memory', { ...NO_SPEC, resources: { processes: 60 } });
      expect(await limit(next)).toBe('60');
      expect(await limit(neighbour)).toBe('2048');
    });

    it('is ended, with the reason, when root exceeds the limit of users', async () => {
      const instance = await started({ processes: 20 });
      const end = await ended(instance, `${many(300)}; sleep 60`, 'root');
      expect(end).toEqual({
        is: 'gone',
        files: true,
        why: 'it started more than the 20 processes that it may have',
      });
    });
  });

  describe('on memory', () => {
    it('is ended, with the reason, when it uses more', async () => {
      const instance = await started({ memoryMb: 128 });
      const hog = 'const kept = []; for (let i = 0; i < 40; i++) kept.push(Buffer.alloc(10 * 2 ** 20, 1))';
      const end = await ended(instance, `${await world.node()} -e '${hog}; setTimeout(() => {}, 60_000)'`);
      expect(end).toEqual({
        is: 'gone',
        files: true,
        why: 'it used more than the 128 MB of memory that it may have',
      });
    });

    it('can be paused with nearly all of it in use, and is limited again when the pause fails', async () => {
      const instance = await started({ memoryMb: 128 });
      const hold = (megabytes: number) =>
        `node -e 'const kept = Buffer.alloc(${megabytes} * 2 ** 20, 1); console.log("held"); setTimeout(() => {}, 60_000)'`;
      const held = `${hold(70).replace('node', await world.node())} > $HOME/held 2>&1 & while ! grep -q held $HOME/held; do sleep 0.1; done`;
      await output(instance, held);
      await world.runtime.freeze(instance, unhurried);
      await sealing(world, (staging) => world.runtime.capture(instance, 'memory', staging, unhurried));
      await world.runtime.thaw(instance, null, unhurried);
      expect(await observed(instance)).toEqual({ is: 'running' });
      const end = await ended(instance, hold(200).replace('node', await world.node()));
      expect(end).toMatchObject({ is: 'gone', why: expect.stringContaining('128 MB') });
    });

    it('is not ended for files that it writes and reads: the page cache is reclaimed', async () => {
      const instance = await started({ memoryMb: 128 });
      const line =
        'dd if=/dev/zero of=$HOME/big bs=1M count=300 2>/dev/null && wc -c < $HOME/big && cat $HOME/big | wc -c';
      expect(await output(instance, line)).toBe('314572800\n314572800');
      expect(await observed(instance)).toEqual({ is: 'running' });
    });
  });

  describe('on files', () => {
    const fill = (megabytes: number) => `dd if=/dev/zero of=$HOME/more bs=1M count=${megabytes}; sleep 60`;

    it('is ended, with the reason, and starts again with some space to clean up', async () => {
      const instance = await started({ diskMb: 100 });
      await output(instance, 'echo kept > $HOME/small; sync');
      const expected = {
        is: 'gone',
        files: true,
        why: 'its files take more than the 100 MB that they may take',
      };
      expect(await ended(instance, fill(300))).toEqual(expected);

      const recovered = await sealing(world, (staging) =>
        world.runtime.recoverFiles(instance, staging, unhurried),
      );
      await world.runtime.destroy(instance, unhurried);
      const next = nextOf(instance);
      await startFrom(world, next, recovered, 'files', { ...NO_SPEC, resources: { diskMb: 100 } });
      const cleanUp =
        'cat $HOME/small; rm $HOME/more; dd if=/dev/zero of=$HOME/little bs=1M count=10 2>/dev/null; ls $HOME';
      expect(await output(next, cleanUp)).toBe('kept\nlittle\nsmall');
      expect(await observed(next)).toEqual({ is: 'running' });
      // Its earlier files count.
      expect(await ended(next, fill(60))).toEqual(expected);
    });
  });

  it.each([
    [
      'bytes',
      `perl -e 'open(F, "+>", "held"); unlink "held"; print F "x" x (1 << 20) for 1 .. 60; sleep 60'`,
    ],
    ['names', `perl -e 'for (1 .. 8000) { open(my $f, "+>", "held"); unlink "held"; push @f, $f } sleep 60'`],
  ])('on files is ended for the %s of deleted files that it holds open', async (_, hold) => {
    const instance = await started({ diskMb: 20 });
    expect(await ended(instance, `cd $HOME; ${hold}`)).toEqual({
      is: 'gone',
      files: true,
      why: 'its files take more than the 20 MB that they may take',
    });
  });

  it('on processor time has the quota in its control group', async () => {
    const instance = await started({ cpus: 0.5 });
    const { container } = world.recordOf(instance);
    const group = join(`torpor-${serverTag(world.dataDir)}`, container.id);
    const isUnified = (await findCgroups())?.version === 'v2';
    const file = isUnified ? join(group, 'cpu.max') : join('cpu', group, 'cpu.cfs_quota_us');
    const quota = await readFile(join('/sys/fs/cgroup', file), 'utf8');
    expect(quota.trim().split(' ')[0]).toBe('50000');
  });
});

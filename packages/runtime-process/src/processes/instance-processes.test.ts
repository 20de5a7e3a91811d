import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Instance, StartSpec } from '@torpor/engine';
import { failureOf, NO_SPEC, nextOf, sealed, sealing, unhurried } from '@torpor/engine/testing';
import { linuxProcesses } from '@torpor/host';
import type { Service } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { httpService, pageOf } from '../../testing/http-service.ts';
import { makeProcessWorld, type ProcessWorld, processesKnowing } from '../../testing/process-world.ts';

const MODES = [
  { mode: 'all as the server’s user', options: { users: null } },
  ...(process.getuid?.() === 0 ? [{ mode: 'each as a user of its own', options: {} }] : []),
];

describe.each(MODES)('the process runtime, $mode', ({ options }) => {
  let world: ProcessWorld;

  beforeEach(async () => {
    world = await makeProcessWorld(options);
  });
  afterEach(() => world.dispose());

  const statesOf = async (instance: Instance) => {
    const pids = await processesKnowing(world.home(instance));
    const states = await Promise.all(pids.map(async (pid) => (await linuxProcesses.read(pid))?.state));
    return new Set(states.filter((state) => state !== 'dead' && state !== undefined));
  };

  describe('the processes of a sandbox', () => {
    const DAEMON = `setsid sh -c 'trap "" TERM HUP; echo $$ > daemon; exec sleep 1000' >/dev/null 2>&1 & echo begun`;
    const daemonOf = async (instance: Instance) => {
      await world.run(instance, DAEMON);
      await expect.poll(() => world.program.read(instance, 'daemon')).toMatch(/^\d+\n$/);
      return Number(await world.program.read(instance, 'daemon'));
    };

    it('are all killed, also a daemon that left its parent and ignores SIGTERM', async () => {
      const instance = await world.started();
      const daemon = await daemonOf(instance);
      expect((await linuxProcesses.read(daemon))?.parent).toBe(1);
      await world.runtime.destroy(instance, unhurried);
      expect(await isAlive(daemon)).toBe(false);
    });

    it('are killed by the next start when the agent has died before', async () => {
      const instance = await world.started();
      const daemon = await daemonOf(instance);
      const checkpoint = await sealed(world, instance);
      await world.runtime.thaw(instance, checkpoint.id, unhurried);
      const { agent } = JSON.parse(await readFile(join(world.home(instance), '../instance.json'), 'utf8'));
      process.kill(agent.pid, 'SIGKILL');
      await expect.poll(() => isAlive(agent.pid)).toBe(false);
      expect(await isAlive(daemon)).toBe(true);
      await world.started({}, checkpoint, nextOf(instance));
      expect(await isAlive(daemon)).toBe(false);
    });

    it('are all killed, also when each keeps starting its successor and exits', async () => {
      const instance = await world.started();
      await world.program.write(instance, 'again.sh', 'echo >> rounds; sh ./again.sh & exit');
      await world.run(instance, 'setsid sh ./again.sh > /dev/null 2>&1 &');
      await expect
        .poll(async () => (await world.program.read(instance, 'rounds'))?.length ?? 0)
        .toBeGreaterThan(20);
      await world.runtime.destroy(instance, unhurried);
      expect(await processesKnowing(world.home(instance))).toEqual([]);
    });

    it('are stopped while the sandbox is frozen, and continue afterwards', async () => {
      const instance = await world.started(withServices(httpService()));
      await daemonOf(instance);
      const ticker =
        'echo 0 > ticks; while :; do echo $(($(cat ticks) + 1)) > ticks.new; mv ticks.new ticks; done';
      await world.run(instance, `setsid sh -c '${ticker}' > /dev/null 2>&1 &`);
      await expect.poll(async () => Number(await world.program.read(instance, 'ticks'))).toBeGreaterThan(3);

      await world.runtime.freeze(instance, unhurried);
      expect(await statesOf(instance)).toEqual(new Set(['stopped']));
      expect((await failureOf(world.runtime.agent(instance, unhurried))).code).toBe('transitioning');
      const seen = await readFile(join(world.home(instance), 'ticks'), 'utf8').catch(() => 'between two');
      await sealing(world, (staging) => world.runtime.capture(instance, 'files', staging, unhurried));
      expect(await readFile(join(world.home(instance), 'ticks'), 'utf8').catch(() => 'between two')).toBe(
        seen,
      );

      await world.runtime.thaw(instance, null, unhurried);
      expect((await pageOf(world.runtime, instance, 3000)).starts).toBe(1);
      const now = Number(await world.program.read(instance, 'ticks'));
      await expect.poll(async () => Number(await world.program.read(instance, 'ticks'))).toBeGreaterThan(now);
    });

    it('are stopped, also when they keep forking and wait for their children in the kernel', async () => {
      const instance = await world.started();
      await world.run(instance, `setsid sh -c 'while :; do /bin/true; done' > /dev/null 2>&1 &`);
      for (let times = 0; times < 12; times++) {
        await world.runtime.freeze(instance, AbortSignal.timeout(10_000));
        expect(await statesOf(instance)).toEqual(new Set(['stopped']));
        await world.runtime.thaw(instance, null, unhurried);
      }
    });

    it('stay stopped after a thaw if a user had stopped them before the freeze', async () => {
      const instance = await world.started();
      await world.run(instance, 'setsid sleep 1000 > /dev/null 2>&1 & echo $! > job; kill -STOP $!');
      const job = Number(await world.program.read(instance, 'job'));
      await expect.poll(async () => (await linuxProcesses.read(job))?.state).toBe('stopped');
      await world.runtime.freeze(instance, unhurried);
      await (await world.reopen()).thaw(instance, null, unhurried);
      expect((await linuxProcesses.read(job))?.state).toBe('stopped');
      expect(await world.runtime.observe(instance, unhurried)).toEqual({ is: 'running' });
    });

    it('get nothing of the server’s environment but the search path', async () => {
      process.env['TORPOR_TEST_SECRET'] = 'key';
      try {
        const instance = await world.started();
        const { output } = await world.run(instance, 'env; cat /proc/$PPID/environ | tr "\\0" "\\n"');
        expect(output).toContain(`HOME=${world.home(instance)}`);
        expect(output).not.toContain('TORPOR_TEST_SECRET');
      } finally {
        delete process.env['TORPOR_TEST_SECRET'];
      }
    });
  });
});

function withServices(...services: Service[]): StartSpec {
  return { ...NO_SPEC, services };
}

async function isAlive(pid: number): Promise<boolean> {
  return ((await linuxProcesses.read(pid))?.state ?? 'dead') !== 'dead';
}

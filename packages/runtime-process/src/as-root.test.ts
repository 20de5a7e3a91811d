import { chmod, cp, lstat, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Instance } from '@torpor/engine';
import { nextOf, paused, unhurried } from '@torpor/engine/testing';
import { linuxProcesses } from '@torpor/host';
import { agentBundle } from '@torpor/runtime-shared/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { makeProcessWorld, type ProcessWorld, processesKnowing } from '../testing/process-world.ts';
import { makeReachable } from './instance/agent-program.ts';

describe.skipIf(process.getuid?.() !== 0)('the process runtime as root', () => {
  let world: ProcessWorld;

  beforeEach(async () => {
    world = await makeProcessWorld();
  });
  afterEach(() => world.dispose());

  const userOf = async (instance: Instance) => Number((await world.run(instance, 'id -u')).output);

  it('gives each instance its own user, who owns the workspace and none of root’s files', async () => {
    const [left, right] = [await world.started(), await world.started()];
    const users = [await userOf(left), await userOf(right)];
    expect(new Set(users).size).toBe(2);
    for (const user of users) expect(user).toBeGreaterThanOrEqual(700_000);
    expect((await world.run(left, 'id -G')).output).toBe(`${users[0]}\n`);
    expect((await stat(world.home(left))).uid).toBe(users[0]);
  });

  it('keeps sandboxes out of the data directory, out of each other and away from their own records', async () => {
    await writeFile(join(world.dataDir, 'secret'), 'key', { mode: 0o644 });
    const [left, right] = [await world.started(), await world.started()];
    await world.program.write(right, 'private', 'theirs');
    const closed = [
      join(world.dataDir, 'secret'),
      world.dataDir,
      world.home(right),
      join(world.home(right), 'private'),
      join(world.home(right), '../run/agent.sock'),
      join(world.home(left), '../instance.json'),
      world.instancesDir,
      join(world.home(left), '../..'),
    ];
    for (const path of closed) {
      expect((await world.run(left, `ls '${path}' && cat '${path}'`)).exitCode, path).not.toBe(0);
    }
  });

  it('keeps the agent’s socket where the sandbox cannot replace it', async () => {
    const instance = await world.started();
    const run = join(world.home(instance), '../run');
    const tricks = [
      'rm ../run/agent.sock',
      'ln -sfn /tmp/elsewhere ../run/agent.sock',
      'mv ../run/agent.sock other.sock',
      'touch ../run/new',
      'chmod 777 ../run',
      'mv ../run run',
    ];
    for (const trick of tricks) expect((await world.run(instance, trick)).exitCode, trick).not.toBe(0);
    const found = await lstat(join(run, 'agent.sock'));
    expect([found.isSocket(), found.uid]).toEqual([true, await userOf(instance)]);
    expect((await stat(run)).uid).toBe(0);
  });

  it('finds the user of an instance whose record is damaged', async () => {
    const instance = await world.started();
    await world.run(instance, `env -i setsid sh -c 'echo $$ > ghost; exec sleep 1000' > /dev/null 2>&1 &`);
    await expect.poll(() => world.program.read(instance, 'ghost')).toMatch(/^\d+\n$/);
    const ghost = Number(await world.program.read(instance, 'ghost'));
    await writeFile(join(world.home(instance), '../instance.json'), '{');
    await world.runtime.destroy(instance, unhurried);
    expect([undefined, 'dead']).toContain((await linuxProcesses.read(ghost))?.state);
  });

  it('gives the files of a checkpoint to the user of the next instance and keeps their modes', async () => {
    const instance = await world.started();
    await world.run(
      instance,
      'echo text > file; ln -s file link; mkdir dir; chmod 4755 file; touch dir/inside',
    );
    const next = await world.started({}, await paused(world, instance), nextOf(instance));
    const user = await userOf(next);
    const { output } = await world.run(next, 'stat -c "%u %a" . file link dir dir/inside');
    expect(output.trim().split('\n')).toEqual([
      `${user} 755`,
      `${user} 4755`,
      `${user} 777`,
      `${user} 755`,
      `${user} 644`,
    ]);
    expect((await world.run(next, 'echo more >> file && cat link')).output).toBe('text\nmore\n');
  });

  it('finds a process that left its parent, session and environment by its user', async () => {
    const instance = await world.started();
    await world.run(instance, `env -i setsid sh -c 'echo $$ > ghost; exec sleep 1000' > /dev/null 2>&1 &`);
    await expect.poll(() => world.program.read(instance, 'ghost')).toMatch(/^\d+\n$/);
    const ghost = Number(await world.program.read(instance, 'ghost'));
    const state = async () => (await linuxProcesses.read(ghost))?.state;
    await world.runtime.freeze(instance, unhurried);
    expect(await state()).toBe('stopped');
    await world.runtime.destroy(instance, unhurried);
    expect([undefined, 'dead']).toContain(await state());
  });

  it('names the directory that the instance’s user may not enter', async () => {
    const instance = await world.started();
    await world.run(instance, 'mkdir -p closed/inside && chmod 600 closed');
    const { process } = await world.agent(instance);
    for (const name of ['closed', 'closed/inside']) {
      const cwd = join(world.home(instance), name);
      const first = process.start({ process: { cmd: '/bin/sh', args: ['-c', 'pwd'], cwd } });
      await expect(first[Symbol.asyncIterator]().next()).rejects.toMatchObject({
        rawMessage: `The working directory ${cwd} may not be entered by this user.`,
      });
    }
    await world.run(instance, 'chmod 700 closed');
  });

  it('freezes and kills processes that fork as fast as they can', async () => {
    const instance = await world.started();
    // The kernel limits their number, and they end by themselves after a while if the test does not kill them.
    const bomb = '[ $(date +%s) -lt $END ] || exit; echo >> rounds; sh ./bomb.sh & sh ./bomb.sh & wait';
    await world.program.write(instance, 'bomb.sh', bomb);
    const start =
      'ulimit -u 100 && [ "$(ulimit -u)" = 100 ] && END=$(($(date +%s) + 20)) exec setsid sh ./bomb.sh';
    await world.run(instance, `command -v bash && (bash -c '${start}' > /dev/null 2>&1 &)`);
    await expect
      .poll(async () => (await world.program.read(instance, 'rounds'))?.length ?? 0, { timeout: 10_000 })
      .toBeGreaterThan(100);
    await world.runtime.freeze(instance, AbortSignal.timeout(15_000));
    await world.runtime.thaw(instance, null, unhurried);
    await world.runtime.destroy(instance, AbortSignal.timeout(15_000));
    expect(await processesKnowing(world.home(instance))).toEqual([]);
  });

  it('does not reuse a user id while an instance has it, alive or dead', async () => {
    await world.dispose();
    world = await makeProcessWorld({ users: { first: 700_000, count: 2 } });
    const alive = await world.started();
    const dead = await world.started();
    const users = [await userOf(alive), await userOf(dead)];
    await world.kill(dead);
    await expect(world.started()).rejects.toMatchObject({ code: 'capacity' });
    await world.runtime.destroy(dead, unhurried);
    expect(await userOf(await world.started())).toBe(users[1]);
  });

  it('copies the program to a directory that the users can reach when its own is closed to them', async () => {
    const closed = await mkdtemp(join(tmpdir(), 'torpor-closed-'));
    const copies = join(world.instancesDir, '.program');
    try {
      await cp(await agentBundle(), join(closed, 'agent'), { recursive: true });
      await mkdir(join(closed, 'bin'));
      await writeFile(join(closed, 'bin/node'), '#!/bin/sh\n', { mode: 0o755 });
      const program = await makeReachable(join(closed, 'bin/node'), join(closed, 'agent'), copies);
      expect(program.node.startsWith(copies)).toBe(true);
      expect(await readFile(program.node, 'utf8')).toBe('#!/bin/sh\n');
      expect(await readdir(join(program.script, '..'))).toContain('node_modules');
      await chmod(closed, 0o755);
      const open = await makeReachable(join(closed, 'bin/node'), join(closed, 'agent'), copies);
      expect(open).toEqual({ node: join(closed, 'bin/node'), script: join(closed, 'agent/agent.mjs') });
    } finally {
      await rm(closed, { recursive: true });
    }
  });
});

/** No system directory of the host and no root of a sandbox can be reached through the data directory. */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { nextOf, paused, startFrom, unhurried } from '@torpor/engine/testing';
import { mountsBelow } from '@torpor/host';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../../testing/gvisor-world.ts';
import { cleanUpHost, runningContainers } from '../host-cleanup.ts';
import { serverTag } from '../instance/instance-names.ts';
import { namespaceFile } from './mount-namespace.ts';

const run = promisify(execFile);
const why = await whyNoGvisor();
/** `npm run test:gvisor` runs all of them. */
const atLength = process.env['TORPOR_CYCLES'] !== undefined;
const PATIENT = { timeout: 20_000, interval: 100 };
const MUCH = { maxBuffer: 256 * 1024 * 1024 };

describe.skipIf(why !== null)('mounts of the gVisor runtime', { timeout: 120_000 }, () => {
  let world: GvisorWorld;

  beforeAll(async () => {
    world = await makeGvisorWorld();
  }, 120_000);
  afterEach(() => world?.dispose(), 60_000);
  afterAll(() => world?.close(), 60_000);

  /** The mounts of the data directory that a host program sees. */
  async function hostMounts(): Promise<string[]> {
    const table = await readFile('/proc/self/mountinfo', 'utf8');
    return table.split('\n').filter((line) => line.includes(world.dataDir));
  }

  /** Directories by device and inode, which no two directories share. */
  async function directoriesIn(path: string, ...more: string[]): Promise<Set<string>> {
    const { stdout } = await run('find', [path, ...more, '-type', 'd', '-printf', '%D:%i\n'], MUCH);
    return new Set(stdout.split('\n').filter((line) => line !== ''));
  }

  /** The system directories that a program reaches when it walks through the data directory as `rm -rf` does. */
  async function reachedSystemDirectories(): Promise<string[]> {
    const system = await directoriesIn('/usr', '-xdev');
    const reached = await directoriesIn(world.dataDir);
    expect(reached.size).toBeGreaterThan(10);
    return [...reached].filter((directory) => system.has(directory));
  }

  it('are invisible to the host while sandboxes run and after the server has stopped', async () => {
    const instance = await world.started();
    await world.program.write(instance, '/home/user/a', 'a');
    expect(await hostMounts()).toEqual([]);
    expect(await reachedSystemDirectories()).toEqual([]);

    await world.whileClosed(async () => {
      expect(await hostMounts()).toEqual([]);
      expect(await reachedSystemDirectories()).toEqual([]);
    });

    expect(await world.runtime.observe(instance, unhurried)).toEqual({ is: 'running' });
    expect(await world.program.read(instance, '/home/user/a')).toBe('a');
    expect(await hostMounts()).toEqual([]);
  });

  /** The mount points below the data directory in the namespace of the sandboxes. */
  async function sandboxMounts(): Promise<string[]> {
    const table = await world.inNamespace('cat', '/proc/self/mountinfo');
    return mountsBelow(table, world.dataDir).map(({ at }) => at);
  }

  it('that were unmounted lazily are repaired at the next start', async () => {
    const instance = await world.started();
    await world.program.write(instance, '/home/user/a', 'a');
    await world.whileClosed(async () => {
      for (const at of (await sandboxMounts()).toReversed()) await world.inNamespace('umount', '-l', at);
      expect(await sandboxMounts()).toEqual([]);
    });

    expect(await world.program.read(instance, '/home/user/a')).toBe('a');
    await world.program.write(instance, '/home/user/b', 'b');
    const created = await world.started();
    expect((await world.run(created, 'ls /usr/bin/env')).exitCode).toBe(0);
    const checkpoint = await paused(world, instance, 'memory');
    await world.runtime.destroy(instance, unhurried);
    const next = nextOf(instance);
    await startFrom(world, next, checkpoint, 'memory');
    expect(await world.program.read(next, '/home/user/b')).toBe('b');
  });

  it.runIf(atLength)(
    'that were unmounted lazily while the server runs do not prevent new sandboxes',
    async () => {
      const instance = await world.started();
      for (const at of (await sandboxMounts()).toReversed()) await world.inNamespace('umount', '-l', at);
      await world.reopen();
      const created = await world.started();
      expect((await world.run(created, 'ls /usr/bin/env')).exitCode).toBe(0);
      expect(await world.runtime.observe(instance, unhurried)).toEqual({ is: 'running' });
      expect(await sandboxMounts()).toContain(world.recordOf(created).rootfs);
    },
  );

  it.runIf(atLength)(
    'end with their namespace when its pin is removed, and the next server makes both again',
    async () => {
      const instance = await world.started();
      const pin = namespaceFile(join('/run/torpor', serverTag(world.dataDir)));
      await world.whileClosed(async () => {
        await run('umount', [pin]);
      });
      expect((await world.run(instance, 'echo here')).output).toBe('here\n');
      expect((await world.run(await world.started(), 'ls /usr/bin/env')).exitCode).toBe(0);
    },
  );

  it.runIf(atLength)('of an earlier version in the namespace of the host are moved out of it', async () => {
    const instance = await world.started();
    const root = world.recordOf(instance).rootfs;
    const bound = join(world.dataDir, 'gvisor');
    await world.whileClosed(async () => {
      await run('umount', [namespaceFile(join('/run/torpor', serverTag(world.dataDir)))]);
      await run('mount', ['--bind', bound, bound]);
      await run('mount', ['--make-shared', bound]);
      await run('mount', ['-t', 'tmpfs', 'legacy-root', root]);
      await run('mount', ['-o', 'bind,ro', '/usr', join(bound, 'view', 'legacy')]).catch(() => {});
    });
    expect(await hostMounts()).toEqual([]);
    expect(await reachedSystemDirectories()).toEqual([]);
    expect((await sandboxMounts()).filter((at) => at === root)).toEqual([root]);
    expect((await world.run(instance, 'echo here')).output).toBe('here\n');
  });

  it('are never deleted through', async () => {
    const instance = await world.started();
    // The bundle of a pre-created container lies in another directory.
    const inside = join(world.recordOf(instance).container.bundle, 'inside');
    await mkdir(inside);
    const precious = await mkdtemp(join(tmpdir(), 'torpor-precious-'));
    await writeFile(join(precious, 'file'), 'kept');
    await run('mount', ['--bind', precious, inside]);
    try {
      await expect(world.runtime.destroy(instance, unhurried)).rejects.toMatchObject({ code: 'conflict' });
      expect(await readFile(join(precious, 'file'), 'utf8')).toBe('kept');
    } finally {
      await run('umount', [inside]);
    }
    await world.runtime.destroy(instance, unhurried);
    await rm(precious, { recursive: true });
  });

  it('are removed with everything else on the host when a data directory without running sandboxes is cleaned up', async () => {
    const instance = await world.started();
    const tag = serverTag(world.dataDir);
    await world.whileClosed(async () => {
      expect(await runningContainers(world.dataDir)).toHaveLength(1);
      await world.kill(instance);
      await vi.waitFor(async () => expect(await runningContainers(world.dataDir)).toEqual([]), PATIENT);
      await cleanUpHost(world.dataDir, unhurried);
      await cleanUpHost(world.dataDir, unhurried);
      const table = await readFile('/proc/self/mountinfo', 'utf8');
      expect(table.split('\n').filter((line) => line.includes(`/run/torpor/${tag}`))).toEqual([]);
      expect(await readdir('/run/torpor')).not.toContain(tag);
      expect((await readdir('/run/netns')).filter((name) => name.startsWith(`${tag}-`))).toEqual([]);
    });
    expect(await world.runtime.observe(instance, unhurried)).toMatchObject({ is: 'gone', files: true });
  });
});

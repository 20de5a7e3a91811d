import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { unhurried } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { makeRunscWorld, usableRunsc } from '../../testing/runsc-world.ts';
import { parseMountPoints, shareMounts, unshareMounts } from './mount-sharing.ts';

const run = promisify(execFile);
const program = await usableRunsc();
/** Others on this machine may be about to copy all mounts, for a moment. */
const AGAIN = { timeout: 5_000, interval: 20 };

describe.skipIf(process.getuid?.() !== 0)('mounts that are shared', () => {
  let top: string;
  let instances: string;

  beforeEach(async () => {
    top = await realpath(await mkdtemp(join(tmpdir(), 'torpor-m-')));
    instances = join(top, 'instances');
    for (const name of ['instances/root', 'lower', 'upper', 'work']) {
      await mkdir(join(top, name), { recursive: true });
    }
  });

  afterEach(async () => {
    await unshareMounts(instances, unhurried);
    await rm(top, { recursive: true });
  });

  const root = () => join(instances, 'root');

  /** With an index, overlayfs refuses an upper layer that another overlay still has. */
  async function mountRoot(): Promise<void> {
    const layers = `lowerdir=${top}/lower,upperdir=${top}/upper,workdir=${top}/work`;
    await run('mount', ['-t', 'overlay', 'torpor', '-o', `${layers},index=on`, root()]);
  }

  /** Another that has copied all mounts, as while a sandbox starts. */
  async function withCopyOfMounts(work: () => Promise<void>): Promise<void> {
    const copy = spawn('unshare', ['--mount', '--propagation', 'slave', 'sh', '-c', 'echo; exec cat'], {
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    await once(copy.stdout, 'data');
    try {
      await work();
    } finally {
      copy.stdin.end();
      await once(copy, 'exit');
    }
  }

  it('are let go in copies of the mount namespace too', async () => {
    await shareMounts(instances, unhurried);
    await mountRoot();

    await withCopyOfMounts(async () => {
      await run('umount', [root()]);

      await vi.waitFor(mountRoot, AGAIN);
      await run('umount', [root()]);
    });
  });

  it('may be asked for twice, and undone', async () => {
    const before = await readFile('/proc/self/mountinfo', 'utf8');
    await shareMounts(instances, unhurried);
    const once = await readFile('/proc/self/mountinfo', 'utf8');
    await shareMounts(instances, unhurried);
    expect(await readFile('/proc/self/mountinfo', 'utf8')).toBe(once);

    await unshareMounts(instances, unhurried);
    await unshareMounts(instances, unhurried);

    expect(await readFile('/proc/self/mountinfo', 'utf8')).toBe(before);
  });

  it.skipIf(program === undefined)('are not held by a container that has ended', async () => {
    const world = await makeRunscWorld(program ?? '');
    try {
      await shareMounts(instances, unhurried);
      await mountRoot();
      const container = await world.counter({ rootfs: root() });
      await world.runsc.run(container, unhurried);
      await world.count(container, () => true);
      await run('umount', [root()]);
      await expect(mountRoot()).rejects.toThrow('busy');

      await world.runsc.end(container, unhurried);

      await vi.waitFor(mountRoot, AGAIN);
      await run('umount', [root()]);
    } finally {
      await world.dispose();
    }
  });
});

describe('the table of mounts', () => {
  it('is read with what is shared and with names as they are', () => {
    const table = [
      '22 27 0:21 / /proc rw,relatime - proc proc rw',
      '30 27 0:5 / /a\\040b rw shared:7 master:2 - ext4 /dev/sda rw',
      '',
    ].join('\n');

    expect(parseMountPoints(table)).toEqual([
      { path: '/proc', isShared: false },
      { path: '/a b', isShared: true },
    ]);
  });
});

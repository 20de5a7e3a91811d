import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { unhurried } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { makeRunscWorld, usableRunsc } from '../../testing/runsc-world.ts';
import { shareMounts, unshareMounts } from './mount-sharing.ts';

const run = promisify(execFile);
const program = await usableRunsc();
/** Another process of the host may hold a copy of all mounts for a moment. */
const AGAIN = { timeout: 5_000, interval: 20 };

describe.skipIf(process.getuid?.() !== 0)('shared mounts', () => {
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

  /** Other mounts of the host come and go. */
  async function mountsHere(): Promise<string[]> {
    const all = await readFile('/proc/self/mountinfo', 'utf8');
    return all.split('\n').filter((line) => line.includes(top));
  }

  /** With `index=on`, overlayfs refuses an upper layer that another mount still uses. */
  async function mountRoot(): Promise<void> {
    const layers = `lowerdir=${top}/lower,upperdir=${top}/upper,workdir=${top}/work`;
    await run('mount', ['-t', 'overlay', 'torpor', '-o', `${layers},index=on`, root()]);
  }

  /** Runs `work` while another mount namespace has a copy of all mounts, as while a sandbox starts. */
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

  it('are unmounted in copies of the mount namespace too', async () => {
    await shareMounts(instances, unhurried);
    await mountRoot();

    await withCopyOfMounts(async () => {
      await run('umount', [root()]);

      await vi.waitFor(mountRoot, AGAIN);
      await run('umount', [root()]);
    });
  });

  it('can be made twice, and undone', async () => {
    const before = await mountsHere();
    await shareMounts(instances, unhurried);
    const once = await mountsHere();
    expect(once).not.toEqual(before);
    await shareMounts(instances, unhurried);
    expect(await mountsHere()).toEqual(once);

    await unshareMounts(instances, unhurried);
    await unshareMounts(instances, unhurried);

    expect(await mountsHere()).toEqual(before);
  });

  it.skipIf(program === undefined)('are released when their container has ended', async () => {
    const world = await makeRunscWorld(program ?? '');
    try {
      await shareMounts(instances, unhurried);
      await mountRoot();
      const container = await world.counter({ rootfs: root() });
      await world.runsc.run(container, unhurried);
      await world.count(container, () => true);
      await run('umount', [root()]);
      await expect(mountRoot()).rejects.toThrow('busy');

      await world.runsc.killProcesses(container, unhurried);

      await vi.waitFor(mountRoot, AGAIN);
      await run('umount', [root()]);
    } finally {
      await world.dispose();
    }
  });
});

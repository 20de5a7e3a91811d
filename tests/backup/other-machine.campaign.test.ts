/** A backup that is restored on another machine: one whose `/usr` differs. */
import { chmod, mkdir, mkdtemp, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { backUpDataDirectory, destroyDataDirectory, restoreDataDirectory } from '@torpor/server';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findMachineBase } from '../../packages/runtime-gvisor/src/base/build-base.mjs';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { startTorpor, type TorporProcess } from '../crash/torpor-process.ts';

const why =
  (await whyNoGvisor()) ?? (findMachineBase() === undefined ? 'this machine has no root for base' : null);
const options = { withDatabase: true, progress: () => {}, signal: new AbortController().signal };
/** The root of its own, also where the tests use the view of the host. */
const OWN_BASE = { TORPOR_BASE: 'auto', TORPOR_LOG_LEVEL: 'error' };

describe.skipIf(why !== null)('a backup of sandboxes of base', { timeout: 300_000 }, () => {
  let top: string;
  let server: TorporProcess | undefined;
  const at = (name: string) => join(top, name);

  beforeEach(async () => {
    top = await realpath(await mkdtemp(join(tmpdir(), 'torpor-om-')));
  });
  afterEach(async () => {
    await server?.end();
    for (const name of ['data', 'again'])
      await destroyDataDirectory(at(name), { force: true, signal: options.signal }).catch(() => {});
    await rm(top, { recursive: true });
  }, 120_000);

  /** Runs a command where `/usr` has other files: a layer over it, in a mount namespace of its own. */
  async function otherMachine(): Promise<[string, ...string[]]> {
    for (const name of ['upper/bin', 'upper/lib/other', 'work']) await mkdir(at(name), { recursive: true });
    await chmod(at('upper'), 0o755);
    await writeFile(at('upper/bin/only-there'), '#!/bin/sh\necho there\n', { mode: 0o755 });
    await writeFile(at('upper/lib/other/library'), 'another version');
    const script = [
      `mount -t overlay -o lowerdir=/usr,upperdir=${at('upper')},workdir=${at('work')} overlay /usr`,
      'rm /usr/bin/yes',
      'exec "$@"',
    ].join(' && ');
    return [
      'unshare',
      '--mount',
      '--propagation',
      'private',
      '--',
      'sh',
      '-c',
      script,
      'sh',
      process.execPath,
    ];
  }

  it('wakes its sleepers with their memory on a machine with another /usr', async () => {
    server = await startTorpor(at('data'), OWN_BASE, 'gvisor');
    const { sandboxes } = server.torpor;
    const { id } = await sandboxes.create({});
    expect((await sandboxes.exec(id, 'ls /usr/bin/yes')).stdout).toBe('/usr/bin/yes\n');
    await sandboxes.exec(id, 'sudo sh -c "echo kept > /usr/local/mine"');
    await sandboxes.execInBackground(id, 'sleep 98765');
    const pid = (await sandboxes.exec(id, 'pgrep -f "sleep 98765" | head -n 1')).stdout;
    await sandboxes.pause(id);
    await backUpDataDirectory(at('data'), at('backup'), options);
    await server.end();
    server = undefined;
    await destroyDataDirectory(at('data'), { force: true, signal: options.signal });

    await restoreDataDirectory(at('backup'), at('again'), options);
    server = await startTorpor(at('again'), OWN_BASE, 'gvisor', [], await otherMachine());
    const restored = server.torpor.sandboxes;
    expect(await restored.resume(id)).toMatchObject({
      sandbox: { state: 'running' },
      source: { kind: 'memory' },
      lost: [],
    });
    expect((await restored.exec(id, 'pgrep -f "sleep 98765" | head -n 1')).stdout).toBe(pid);
    expect((await restored.exec(id, 'cat /usr/local/mine; ls /usr/bin/yes; which only-there')).stdout).toBe(
      'kept\n/usr/bin/yes\n',
    );
    const fresh = await restored.create({});
    expect((await restored.exec(fresh.id, 'ls /usr/bin/yes; which only-there')).stdout).toBe(
      '/usr/bin/yes\n',
    );
  });
});

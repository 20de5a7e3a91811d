import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { unhurried } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { withMount } from '../../testing/with-mount.ts';
import { nearestDirectory } from './host-check.ts';
import { checkNetworkNamespaces, checkNftables, checkOverlay, checkScheduling } from './kernel-checks.ts';
import {
  checkCgroups,
  checkDisk,
  checkMemory,
  checkProjectQuotas,
  checkReflinks,
} from './resource-checks.ts';

const run = promisify(execFile);
let top: string;
let host: { readonly dataDir: string; readonly signal: AbortSignal };

beforeEach(async () => {
  top = await mkdtemp(join(tmpdir(), 'torpor-h-'));
  host = { dataDir: join(top, 'data'), signal: unhurried };
});

afterEach(() => rm(top, { recursive: true }));

describe.skipIf(process.getuid?.() !== 0)('the checks of the kernel', () => {
  it('pass here, and leave nothing on the host', async () => {
    const before = await run('nft', ['list', 'tables']);

    const all = [checkOverlay, checkNetworkNamespaces, checkNftables, checkScheduling];
    const checks = await Promise.all(all.map((check) => check(host)));

    expect(checks.filter(({ ok }) => !ok)).toEqual([]);
    expect(await readdir(top)).toEqual([]);
    expect((await run('ip', ['link'])).stdout).not.toContain('torpor0');
    expect(await run('nft', ['list', 'tables'])).toEqual(before);
  });

  it('fail for a disk that cannot hold overlay layers', async () => {
    for (const part of ['lower', 'upper', 'work']) await mkdir(join(top, part));
    const layers = `lowerdir=${top}/lower,upperdir=${top}/upper,workdir=${top}/work`;

    await withMount(join(top, 'disk'), ['-t', 'overlay', 'torpor', '-o', layers], async () => {
      expect(await checkOverlay({ ...host, dataDir: join(top, 'disk', 'data') })).toMatchObject({
        ok: false,
        detail: expect.stringContaining('cannot be stacked'),
        fix: expect.stringContaining('--data-dir'),
      });
      expect(await readdir(join(top, 'disk'))).toEqual([]);
    });
  });

  it('fail for a disk that cannot be written to', async () => {
    expect(await checkOverlay({ ...host, dataDir: '/proc/torpor' })).toMatchObject({ ok: false });
  });
});

describe('control groups', () => {
  it('are reported with version and controllers', async () => {
    for (const controller of ['memory', 'cpu', 'pids'])
      await mkdir(join(top, 'v1', controller), { recursive: true });
    expect(await checkCgroups(host, join(top, 'v1'))).toMatchObject({
      ok: true,
      detail: 'v1: memory, cpu, pids',
    });

    await writeFile(join(top, 'cgroup.controllers'), 'cpuset cpu io memory pids\n');
    expect(await checkCgroups(host, top)).toMatchObject({ ok: true, detail: 'v2: memory, cpu, pids' });
  });

  it('are incomplete without one of the controllers', async () => {
    await writeFile(join(top, 'cgroup.controllers'), 'cpuset memory\n');

    expect(await checkCgroups(host, top)).toMatchObject({ ok: false, detail: 'v2, cpu, pids missing' });
    expect(await checkCgroups(host, join(top, 'none'))).toMatchObject({ ok: false });
  });

  it('are unusable where no group can be made, although the controllers are there', async () => {
    for (const controller of ['memory', 'cpu', 'pids']) await writeFile(join(top, controller), '');

    expect(await checkCgroups(host, top)).toMatchObject({
      ok: false,
      detail: expect.stringMatching(/^v1, no group can be made: ENOTDIR/),
      fix: expect.stringContaining('limits on memory, processors and processes are not enforced'),
    });
  });

  it.skipIf(process.getuid?.() !== 0)('of the host keep nothing of the check', async () => {
    await checkCgroups(host);
    const entries = await readdir('/sys/fs/cgroup', { recursive: true });
    expect(entries.filter((entry) => entry.includes(`torpor-doctor-${process.pid}`))).toEqual([]);
  });
});

describe('free space', () => {
  it('on the disk is that of the nearest existing directory', async () => {
    expect(await nearestDirectory(join(top, 'a', 'b'))).toBe(top);
    expect(await checkDisk({ ...host, dataDir: '/proc/none' })).toMatchObject({
      ok: false,
      detail: expect.stringMatching(/^0 MiB/),
    });
  });

  it('is shared between copies where the file system can, and is never a fault', async () => {
    expect(await checkReflinks(host)).toMatchObject({
      ok: true,
      detail: expect.stringMatching(/^(yes|no): /),
    });
    expect(await checkReflinks({ ...host, dataDir: '/proc/none' })).toMatchObject({
      ok: true,
      detail: expect.stringMatching(/^not known: /),
    });
    expect((await readdir(top)).filter((name) => name.includes('reflink'))).toEqual([]);
  });

  it('is limited by project quotas where there are any; otherwise the reason and the cost are given', async () => {
    expect(await checkProjectQuotas(host)).toMatchObject({
      ok: true,
      detail: expect.stringMatching(/^(yes: |no \(.+\): .+`diskMb`.+`df` )/),
    });
    expect(await checkProjectQuotas({ ...host, dataDir: '/proc/none' })).toMatchObject({
      ok: true,
      detail: expect.stringMatching(/^no \(proc has no project quotas\): /),
    });
    expect((await readdir(top)).filter((name) => name.includes('quota'))).toEqual([]);
  });

  it('in memory is what the kernel reports as available', async () => {
    const table = join(top, 'meminfo');
    await writeFile(table, 'MemTotal:  8000000 kB\nMemAvailable:     400000 kB\n');
    expect(await checkMemory(host, table)).toMatchObject({ ok: false, detail: '390 MiB available' });
    await writeFile(table, 'MemTotal:  8000000 kB\nMemAvailable:     4000000 kB\n');
    expect(await checkMemory(host, table)).toMatchObject({ ok: true });
  });
});

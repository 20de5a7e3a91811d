import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemBinds, systemDirectories } from './system-directories.ts';
import { systemFingerprint } from './system-fingerprint.ts';

let host = '';

beforeEach(async () => {
  host = await mkdtemp(join(tmpdir(), 'torpor-host-'));
  await mkdir(join(host, 'usr/bin'), { recursive: true });
  await mkdir(join(host, 'usr/lib/x'), { recursive: true });
});

afterEach(() => rm(host, { recursive: true }));

describe('the system directories of a host', () => {
  it('include links into /usr as links', async () => {
    await symlink('usr/bin', join(host, 'bin'));
    await mkdir(join(host, 'etc/alternatives'), { recursive: true });
    expect(systemDirectories(host)).toEqual({
      bound: ['/usr', '/etc/alternatives'],
      links: [{ path: '/bin', target: 'usr/bin' }],
    });
  });

  it('include real directories as bind mounts', async () => {
    await mkdir(join(host, 'lib'));
    expect(systemDirectories(host)).toEqual({ bound: ['/usr', '/lib'], links: [] });
  });

  it('are mounted first and covered after that', () => {
    const sources = { bound: new Map([['/usr', '/view/usr']]), tools: '/view/tools', hasSudo: true };
    const covered = { directories: ['/usr/local/etc'], files: ['/usr/lib/secret'] };
    expect(systemBinds(sources, covered)).toEqual([
      { source: '/view/usr', destination: '/usr' },
      { source: '/view/tools/empty', destination: '/usr/local/etc' },
      { source: '/view/tools/empty-file', destination: '/usr/lib/secret' },
      { source: '/view/tools/bin/sudo', destination: '/usr/bin/sudo' },
    ]);
    expect(systemBinds({ ...sources, hasSudo: false }, { directories: [], files: [] })).toHaveLength(1);
  });
});

describe('the fingerprint of a system', () => {
  const fingerprint = async () => systemFingerprint(systemDirectories(host), host);

  it('is the same while nothing changes', async () => {
    expect(await fingerprint()).toBe(await fingerprint());
  });

  it.each([
    ['a program is added', () => writeFile(join(host, 'usr/bin/new'), '')],
    ['a library is added', () => writeFile(join(host, 'usr/lib/x/new.so'), '')],
    ['a directory appears', () => mkdir(join(host, 'usr/local'))],
    ['a link at the top is another', () => symlink('usr/lib', join(host, 'lib'))],
  ])('is another when %s', async (_, change) => {
    const before = await fingerprint();
    await change();
    expect(await fingerprint()).not.toBe(before);
  });

  it('changes with a package, even if no name changes', async () => {
    await mkdir(join(host, 'var/lib/dpkg'), { recursive: true });
    await writeFile(join(host, 'var/lib/dpkg/status'), 'Package: a\nVersion: 1\n');
    const before = await fingerprint();
    await writeFile(join(host, 'var/lib/dpkg/status'), 'Package: a\nVersion: 2\n');
    expect(await fingerprint()).not.toBe(before);
  });

  it('is the same when a package database is rewritten without a change', async () => {
    await mkdir(join(host, 'var/lib/dpkg'), { recursive: true });
    await writeFile(join(host, 'var/lib/dpkg/status'), 'Package: a\n');
    const before = await fingerprint();
    await rm(join(host, 'var/lib/dpkg/status'));
    await writeFile(join(host, 'var/lib/dpkg/status'), 'Package: a\n');
    expect(await fingerprint()).toBe(before);
  });
});

import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { mergeHosts, writeNames } from './machine-names.ts';

let etc = '';

beforeEach(async () => {
  etc = await mkdtemp(join(tmpdir(), 'torpor-names-'));
});

afterEach(() => rm(etc, { recursive: true }));

describe('/etc/hosts', () => {
  it('has the server’s lines first, once, and keeps all others', () => {
    const first = mergeHosts('127.0.0.1 localhost\n', '10.0.0.2 old\n');
    expect(first.split('\n').slice(1)).toEqual([
      '10.0.0.2 old',
      '# Yours begin here.',
      '127.0.0.1 localhost',
      '',
    ]);
    const second = mergeHosts(`${first}10.1.1.1 theirs\n`, '10.0.0.6 new');
    expect(second).not.toContain('old');
    expect(second.match(/10\.0\.0\.6 new/g)).toHaveLength(1);
    expect(second).toContain('127.0.0.1 localhost\n10.1.1.1 theirs\n');
    expect(mergeHosts(second, '10.0.0.6 new')).toBe(second);
  });

  it('loses nothing when one of the marks is missing', () => {
    const without = mergeHosts('127.0.0.1 localhost\n', '10.0.0.2 box').replace('# Yours begin here.\n', '');
    expect(mergeHosts(without, '10.0.0.2 box')).toContain('127.0.0.1 localhost');
  });
});

describe('the files of names', () => {
  it('replace a dangling link', async () => {
    await symlink('/run/systemd/resolve/nothing-here', join(etc, 'resolv.conf'));
    expect(writeNames({ resolvConf: 'nameserver 192.0.2.1\n', hosts: '192.0.2.9 box' }, etc)).toBe(true);
    expect(await readFile(join(etc, 'resolv.conf'), 'utf8')).toBe('nameserver 192.0.2.1\n');
    expect(await readFile(join(etc, 'hosts'), 'utf8')).toContain('192.0.2.9 box');
  });

  it('replace a FIFO, which would block a reader', async () => {
    const hosts = join(etc, 'hosts');
    await promisify(execFile)('mkfifo', [hosts]);
    expect(writeNames({ hosts: '192.0.2.9 box' }, etc)).toBe(true);
    expect(await readFile(hosts, 'utf8')).toContain('192.0.2.9 box');
  });

  it('stay unchanged when the server does not set them', async () => {
    await writeFile(join(etc, 'hosts'), 'mine\n');
    const { ino } = await stat(join(etc, 'hosts'));
    expect(writeNames({}, etc)).toBe(true);
    expect((await stat(join(etc, 'hosts'))).ino).toBe(ino);
  });

  it('are reported when they cannot be written, and the others are still written', async () => {
    await rm(etc, { recursive: true });
    expect(writeNames({ resolvConf: 'x', hosts: 'y' }, etc)).toBe(false);
    await writeFile(etc, '');
  });
});

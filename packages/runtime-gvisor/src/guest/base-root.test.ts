import {
  chmod,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeBaseRoot } from './base-root.ts';
import { copyNeededSettings } from './host-settings.ts';
import { coveredPaths, systemDirectories } from './system-directories.ts';

describe.skipIf(process.getuid?.() !== 0)('the root of base', () => {
  let directory = '';
  let root = '';

  beforeAll(async () => {
    directory = await mkdtemp('/var/tmp/torpor-base-');
    root = join(directory, 'root');
    await mkdir(root);
    await makeBaseRoot(root, systemDirectories());
  });

  afterAll(() => rm(directory, { recursive: true }));

  it('has a user with a home and dotfiles, and world-writable temporary directories', async () => {
    const home = await stat(join(root, 'home/user'));
    expect([home.uid, home.gid]).toEqual([1000, 1000]);
    for (const name of ['.bashrc', '.profile'])
      expect((await stat(join(root, 'home/user', name))).uid).toBe(1000);
    for (const path of ['tmp', 'var/tmp']) expect((await stat(join(root, path))).mode & 0o7777).toBe(0o1777);
    expect(await readdir(join(root, 'tmp'))).not.toEqual([]);
    expect((await stat(join(root, 'root'))).mode & 0o777).toBe(0o700);
  });

  it('has a protected shadow file without password hashes', async () => {
    const { mode, gid } = await stat(join(root, 'etc/shadow'));
    expect([mode & 0o777, gid]).toEqual([0o640, 42]);
    expect(await readFile(join(root, 'etc/shadow'), 'utf8')).not.toContain('$');
  });

  it('has the top directories and links of the host', async () => {
    const { bound, links } = systemDirectories();
    for (const path of bound) expect((await lstat(join(root, path))).isDirectory(), path).toBe(true);
    for (const { path, target } of links) expect(await readlink(join(root, path))).toBe(target);
  });

  it('has no protected files, names or keys of the host', async () => {
    const hidden = [
      'ssh',
      'ssl/private',
      'sudoers',
      'sudoers.d',
      'gitconfig',
      'npmrc',
      'machine-id',
      'apt/auth.conf',
      'apt/auth.conf.d',
      'fstab',
      'wgetrc',
      'crontab',
    ];
    for (const name of hidden) await expect(lstat(join(root, 'etc', name)), name).rejects.toThrow('ENOENT');
    expect(await readFile(join(root, 'etc/pip.conf'), 'utf8')).toBe(
      '[global]\nbreak-system-packages = true\n',
    );
    expect(await readFile(join(root, 'etc/hostname'), 'utf8')).toBe('sandbox\n');
  });
});

describe('the settings that are copied from the host', () => {
  it('are those on the list, and of these only world-readable files', async () => {
    const directory = await mkdtemp('/var/tmp/torpor-etc-');
    const [etc, to] = [join(directory, 'etc'), join(directory, 'to')];
    try {
      await mkdir(join(etc, 'ssl/certs'), { recursive: true });
      await mkdir(join(etc, 'ssl/private'));
      await mkdir(join(etc, 'fonts'));
      await mkdir(join(etc, 'fonts/closed'), { mode: 0o700 });
      await writeFile(join(etc, 'ssl/certs/ca.pem'), 'public');
      await writeFile(join(etc, 'ssl/certs/key.pem'), 'secret', { mode: 0o600 });
      await symlink('/etc/shadow', join(etc, 'ssl/certs/link.pem'));
      await writeFile(join(etc, 'fonts/closed/x'), 'secret');
      await writeFile(join(etc, 'shadow'), 'secret');
      await mkdir(join(etc, 'python3.99'));
      await copyNeededSettings(to, etc);
      expect((await readdir(to, { recursive: true })).toSorted()).toEqual([
        'X11',
        'fonts',
        'maven',
        'python3.99',
        'ssl',
        'ssl/certs',
        'ssl/certs/ca.pem',
        'ssl/certs/link.pem',
      ]);
      // A link, not a copy of its target on the host.
      expect(await readlink(join(to, 'ssl/certs/link.pem'))).toBe('/etc/shadow');
    } finally {
      await rm(directory, { recursive: true });
    }
  });
});

describe('covered paths', () => {
  it('are whole directories where a sandbox could not start with so many covered files', async () => {
    const directory = await mkdtemp('/var/tmp/torpor-covered-');
    try {
      await chmod(directory, 0o755);
      await mkdir(join(directory, 'cache'));
      await writeFile(join(directory, 'secret'), '', { mode: 0o600 });
      for (let number = 0; number < 300; number += 1)
        await writeFile(join(directory, 'cache', String(number)), '', { mode: 0o600 });
      const { directories, files } = await coveredPaths({ bound: [directory], links: [] });
      expect(directories).toContain(join(directory, 'cache'));
      expect(files).toEqual([join(directory, 'secret')]);
    } finally {
      await rm(directory, { recursive: true });
    }
  });

  it('are all files that are not world-readable, and settings of the host’s users', async () => {
    const directory = await mkdtemp('/var/tmp/torpor-covered-');
    try {
      await chmod(directory, 0o755);
      await mkdir(join(directory, 'open'));
      await mkdir(join(directory, 'closed'), { mode: 0o750 });
      await writeFile(join(directory, 'closed/inside'), '');
      await writeFile(join(directory, 'open/secret'), '', { mode: 0o640 });
      await writeFile(join(directory, 'open/public'), '');
      await symlink('/etc/shadow', join(directory, 'open/link'));
      const odd = Buffer.concat([Buffer.from(`${directory}/open/`), Buffer.from([0xff, 0x0a])]);
      await writeFile(odd, '', { mode: 0o600 });
      const { directories, files } = await coveredPaths({ bound: [directory], links: [] });
      const own = (paths: readonly string[]) => paths.filter((path) => path.startsWith(directory));
      // One name is not valid UTF-8, so its directory is covered.
      expect(own(directories)).toEqual([join(directory, 'closed'), join(directory, 'open')].toSorted());
      expect(own(files)).toEqual([join(directory, 'open/secret')]);
      expect(directories.filter((path) => path.startsWith('/usr')).every((path) => path !== '/usr')).toBe(
        true,
      );
    } finally {
      await rm(directory, { recursive: true });
    }
  });
});

/**
 * Makes the bottom layer of `base`: everything of a root but the host's system directories. Those are bind-mounted at
 * every start. This layer is made once, and guests may change their copies of its files.
 */
import { chmod, chown, mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { mapWriteErrors } from '@torpor/runtime-shared';
import { SHADOW_GID, systemAccounts, withGuestUser } from './accounts.ts';
import { COMMON_SETTINGS, HOME_SETTINGS, HOST_VIEW_SETTINGS } from './base-settings.ts';
import { completeRoot } from './complete-root.ts';
import { copyNeededSettings } from './host-settings.ts';
import { GUEST_HOME } from './layout.ts';
import type { SystemDirectories } from './system-directories.ts';

/** Directories that programs expect and write to. */
const DIRECTORIES = [
  '/boot',
  '/etc/apt/apt.conf.d',
  '/etc/apt/preferences.d',
  '/etc/apt/sources.list.d',
  '/etc/apt/trusted.gpg.d',
  '/etc/opt',
  '/etc/skel',
  '/media',
  '/mnt',
  '/opt',
  '/run/lock',
  '/srv',
  '/var/backups',
  '/var/cache/apt/archives/partial',
  '/var/cache/ldconfig',
  '/var/lib/apt/lists/partial',
  '/var/lib/dpkg/info',
  '/var/lib/dpkg/updates',
  '/var/lib/misc',
  '/var/local',
  '/var/log',
  '/var/mail',
  '/var/opt',
  '/var/spool',
  '/var/www',
];

const LINKS: Readonly<Record<string, string>> = {
  '/etc/localtime': '/usr/share/zoneinfo/Etc/UTC',
  '/etc/mtab': '/proc/self/mounts',
  '/var/lock': '/run/lock',
  '/var/run': '/run',
};

/** The list of packages in the bound directories; programs read it before they use a package. */
const PACKAGES = '/var/lib/dpkg/status';

/** `into` is an empty directory. */
export async function makeBaseRoot(into: string, system: SystemDirectories): Promise<void> {
  await mapWriteErrors(into, async () => {
    await chmod(into, 0o755);
    for (const path of DIRECTORIES) await mkdir(join(into, path), { recursive: true });
    for (const path of system.bound) await mkdir(join(into, path), { recursive: true });
    for (const { path, target } of system.links) await symlink(target, join(into, path));
    await copyNeededSettings(join(into, 'etc'));
    for (const [path, target] of Object.entries(LINKS)) await symlink(target, join(into, path));
    for (const [path, text] of Object.entries({ ...COMMON_SETTINGS, ...HOST_VIEW_SETTINGS }))
      await write(join(into, path), text);
    await writePackages(into);
    await writeAccounts(into);
    await completeRoot(into);
    await writeHome(into, withGuestUser(systemAccounts(), '/bin/bash'));
  });
}

async function writeAccounts(into: string): Promise<void> {
  const { files } = withGuestUser(systemAccounts(), '/bin/bash');
  await write(join(into, 'etc/passwd'), files.passwd);
  await write(join(into, 'etc/group'), files.group);
  await write(join(into, 'etc/shadow'), files.shadow ?? '');
  await chmod(join(into, 'etc/shadow'), 0o640);
  await chown(join(into, 'etc/shadow'), 0, SHADOW_GID);
}

/** The settings of the guest's user, who has the given ids. */
export async function writeHome(
  into: string,
  { uid, gid }: { readonly uid: number; readonly gid: number },
): Promise<void> {
  const home = join(into, GUEST_HOME);
  for (const [name, text] of Object.entries(HOME_SETTINGS)) {
    await write(join(home, name), text);
    await chown(join(home, name), uid, gid);
    if (name !== '.npmrc') await write(join(into, 'etc/skel', name), text);
  }
}

async function writePackages(into: string): Promise<void> {
  const packages = await readFile(PACKAGES).catch(() => '');
  await write(join(into, PACKAGES), packages);
  await write(join(into, '/var/lib/dpkg/available'), '');
}

export async function write(path: string, content: string | Buffer): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, content, { mode: 0o644 });
}

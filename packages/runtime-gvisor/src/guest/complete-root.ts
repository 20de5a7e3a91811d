/** Adds what every root needs before the agent runs in it, where it is missing: mount points, accounts, a PATH. */
import { chmod, chown, lstat, mkdir, readdir, symlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { withGuestUser } from './accounts.ts';
import { directoryInside, insideRoot, readInside, writeInside } from './inside-root.ts';
import { TOOLS, TOOLS_BIN } from './layout.ts';

/** Where a guest mounts something over its root. */
const MOUNT_POINTS = ['/proc', '/sys', '/dev', TOOLS];

const HOSTS = `127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
`;

/** Login shells start with the PATH of the template, which does not include Torpor's programs. */
const PROFILE_SCRIPT = `case ":$PATH:" in
  *:${TOOLS_BIN}:*) ;;
  *) PATH="${TOOLS_BIN}:$PATH" ;;
esac
export PATH
`;

/** `root` may be untrusted: no link in it leads out of it. */
export async function completeRoot(root: string): Promise<void> {
  for (const path of MOUNT_POINTS) await directoryInside(root, path);
  await directoryInside(root, '/etc');
  await directoryInside(root, '/root', 0o700);
  await addTmp(root);
  await addAccounts(root);
  for (const [path, text] of [
    ['/etc/hosts', HOSTS],
    ['/etc/hostname', 'sandbox\n'],
    ['/etc/resolv.conf', ''],
  ] as const) {
    if (!(await isThere(root, path))) await writeInside(root, path, text);
  }
  await addPrograms(root);
}

/** Login shells reset PATH in /etc/profile. This sets the PATH of an image again, before Torpor's programs are added. */
export async function keepSearchPath(root: string, path: string | undefined): Promise<void> {
  if (path === undefined) return;
  const quoted = `'${path.replaceAll("'", "'\\''")}'`;
  await writeInside(root, '/etc/profile.d/00-torpor-image.sh', `PATH=${quoted}\nexport PATH\n`);
}

async function addAccounts(root: string): Promise<void> {
  const [passwd = '', group = '', shadow] = await Promise.all(
    ['passwd', 'group', 'shadow'].map((name) => readInside(root, `/etc/${name}`)),
  );
  const shell = (await isThere(root, '/bin/bash')) ? '/bin/bash' : '/bin/sh';
  const { files, uid, gid, home } = withGuestUser({ passwd, group, shadow }, shell);
  await writeInside(root, '/etc/passwd', files.passwd);
  await writeInside(root, '/etc/group', files.group);
  if (files.shadow !== undefined) await writeInside(root, '/etc/shadow', files.shadow, 0o640);
  if (await isThere(root, home)) return;
  await chown(await directoryInside(root, home), uid, gid);
}

/**
 * Makes /tmp world-writable, and not empty: gVisor mounts a tmpfs over an empty /tmp, and its files would be lost when
 * the sandbox starts from its files.
 */
async function addTmp(root: string): Promise<void> {
  for (const path of ['/tmp', '/var/tmp']) await chmod(await directoryInside(root, path), 0o1777);
  const tmp = await insideRoot(root, '/tmp');
  if ((await readdir(tmp)).length > 0) return;
  await mkdir(join(tmp, '.X11-unix'));
  await chmod(join(tmp, '.X11-unix'), 0o1777);
}

async function addPrograms(root: string): Promise<void> {
  await directoryInside(root, '/etc/profile.d');
  await writeInside(root, '/etc/profile.d/torpor.sh', PROFILE_SCRIPT);
  // Scripts that call sudo by its full path get Torpor's, unless the root has a sudo of its own.
  const programs = await insideRoot(root, '/usr/bin');
  const isDirectory = await lstat(programs).then(
    (found) => found.isDirectory(),
    () => false,
  );
  if (!isDirectory || (await isThere(root, '/usr/bin/sudo'))) return;
  await symlink(`${TOOLS_BIN}/sudo`, join(programs, 'sudo'));
}

/** A link exists even when its target does not. */
async function isThere(root: string, path: string): Promise<boolean> {
  return lstat(join(await insideRoot(root, dirname(path)), basename(path))).then(
    () => true,
    () => false,
  );
}

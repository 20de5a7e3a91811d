/**
 * Copies the files under the host's /etc that programs under its /usr need: certificates, library paths, locales, file
 * types. Only files that are named here, and of those only the world-readable ones.
 */
import { constants } from 'node:fs';
import { copyFile, lstat, mkdir, readdir, readlink, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';

/** A star at the end matches the rest of a name. */
const NEEDED = [
  'adduser.conf',
  'bash_completion.d',
  'ca-certificates',
  'ca-certificates.conf',
  'debian_version',
  'deluser.conf',
  'ethertypes',
  'fonts',
  'gai.conf',
  'groff',
  'host.conf',
  'inputrc',
  'java-*',
  'ld.so.cache',
  'ld.so.conf',
  'ld.so.conf.d',
  'locale.alias',
  'locale.gen',
  'login.defs',
  'lsb-release',
  'magic',
  'magic.mime',
  'maven/logging',
  'maven/m2.conf',
  'mime.types',
  'networks',
  'os-release',
  'perl',
  'protocols',
  'python3',
  'python3.*',
  'rpc',
  'services',
  'shells',
  'ssl/certs',
  'ssl/openssl.cnf',
  'terminfo',
  'vim',
  'X11/rgb.txt',
];

const OTHERS_READ = 0o004;
const OTHERS_ENTER = 0o001;

/** `to` is a trusted directory. Links are copied as links: a guest resolves them in its own root. */
export async function copyNeededSettings(to: string, etc = '/etc'): Promise<void> {
  for (const pattern of NEEDED) {
    for (const path of await matching(etc, pattern)) {
      await mkdir(dirname(join(to, path)), { recursive: true });
      await copyReadable(join(etc, path), join(to, path));
    }
  }
}

async function matching(etc: string, pattern: string): Promise<string[]> {
  if (!pattern.endsWith('*')) return [pattern];
  const names = await readdir(etc).catch(() => []);
  return names.filter((name) => name.startsWith(pattern.slice(0, -1)));
}

async function copyReadable(from: string, to: string): Promise<void> {
  const found = await lstat(from).catch(() => undefined);
  if (found === undefined) return;
  if (found.isSymbolicLink()) return symlink(await readlink(from), to);
  if ((found.mode & OTHERS_READ) === 0) return;
  if (found.isFile()) return copyFile(from, to, constants.COPYFILE_FICLONE);
  if (!found.isDirectory() || (found.mode & OTHERS_ENTER) === 0) return;
  await mkdir(to, { recursive: true });
  for (const name of await readdir(from)) await copyReadable(join(from, name), join(to, name));
}

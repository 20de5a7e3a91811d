/**
 * A name for the state of this machine's system, cheap enough to ask for at every start. A memory image maps
 * programs and libraries of the system, and must not be used over others than it was made with.
 */
import { createHash } from 'node:crypto';
import { lstat, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { SystemDirectories } from './system-directories.ts';

/** Each package manager writes down here what is installed; one that is not there counts as empty. */
const PACKAGE_DATABASES = [
  '/var/lib/dpkg/status',
  '/lib/apk/db/installed',
  '/var/lib/rpm/rpmdb.sqlite',
  '/usr/lib/sysimage/rpm/rpmdb.sqlite',
];

/** Above this the time of the last change has to do. */
const MAX_READ_BYTES = 32 * 1024 * 1024;

/** Everything that comes and goes in a directory changes its time; packages that only replace files are in the database. */
const DEPTH = 2;

export async function systemFingerprint({ bound, links }: SystemDirectories, host = '/'): Promise<string> {
  const hash = createHash('sha256').update(JSON.stringify({ bound, links }));
  for (const path of PACKAGE_DATABASES)
    hash.update(`\0${path}\0`).update(await databaseState(join(host, path)));
  const directories = (await Promise.all(bound.map((path) => directoriesBelow(host, path, DEPTH)))).flat();
  for (const state of directories.sort()) hash.update(`\0${state}`);
  return hash.digest('hex');
}

async function databaseState(path: string): Promise<Buffer | string> {
  const found = await lstat(path, { bigint: true }).catch(() => undefined);
  if (found === undefined) return '';
  return found.size <= MAX_READ_BYTES ? readFile(path) : `${found.size} ${found.mtimeNs}`;
}

async function directoriesBelow(host: string, path: string, depth: number): Promise<string[]> {
  const found = await lstat(join(host, path), { bigint: true }).catch(() => undefined);
  if (found?.isDirectory() !== true) return [];
  const own = `${path} ${found.ino} ${found.mtimeNs}`;
  if (depth === 0) return [own];
  const entries = await readdir(join(host, path), { withFileTypes: true });
  const below = entries.filter((entry) => entry.isDirectory());
  const all = await Promise.all(
    below.map((entry) => directoriesBelow(host, join(path, entry.name), depth - 1)),
  );
  return [own, ...all.flat()];
}

/**
 * A fingerprint of the host's system directories, cheap enough to compute at every start. A memory image maps programs
 * and libraries of the system, and must not be used over other versions of them.
 *
 * It takes a few hundred system calls that the kernel answers from memory: two milliseconds on this thread, ten through
 * Node's thread pool.
 */
import { createHash } from 'node:crypto';
import { type BigIntStats, lstatSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { SystemDirectories } from './system-directories.ts';

/** The databases of package managers. A missing one counts as empty. */
const PACKAGE_DATABASES = [
  '/var/lib/dpkg/status',
  '/lib/apk/db/installed',
  '/var/lib/rpm/rpmdb.sqlite',
  '/usr/lib/sysimage/rpm/rpmdb.sqlite',
];

/** For a larger database, size and modification time are used instead of its contents. */
const MAX_READ_BYTES = 32 * 1024 * 1024;

/**
 * Adding and removing entries changes the time of a directory. Packages that only replace files deeper down change the
 * database.
 */
const DEPTH = 2;

export function systemFingerprint({ bound, links }: SystemDirectories, host = '/'): string {
  const hash = createHash('sha256').update(JSON.stringify({ bound, links }));
  for (const path of PACKAGE_DATABASES) hash.update(`\0${path}\0`).update(databaseState(join(host, path)));
  const directories = bound.flatMap((path) => directoriesBelow(host, path, DEPTH));
  for (const state of directories.sort()) hash.update(`\0${state}`);
  return hash.digest('hex');
}

/** The directories to watch: every change of the fingerprint is a change of an entry in one of them. */
export function watchedDirectories({ bound }: SystemDirectories, host = '/'): string[] {
  const databases = PACKAGE_DATABASES.map((path) => dirname(join(host, path)));
  const below = bound.flatMap((path) => pathsBelow(host, path, DEPTH));
  return [...databases.filter((path) => statOrUndefined(path)?.isDirectory()), ...below];
}

function pathsBelow(host: string, path: string, depth: number): string[] {
  const at = join(host, path);
  if (statOrUndefined(at)?.isDirectory() !== true) return [];
  const below =
    depth === 0 ? [] : readdirSync(at, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  return [at, ...below.flatMap((entry) => pathsBelow(host, join(path, entry.name), depth - 1))];
}

function databaseState(path: string): Buffer | string {
  const found = statOrUndefined(path);
  if (found === undefined) return '';
  return found.size <= MAX_READ_BYTES ? readFileSync(path) : `${found.size} ${found.mtimeNs}`;
}

function directoriesBelow(host: string, path: string, depth: number): string[] {
  const found = statOrUndefined(join(host, path));
  if (found?.isDirectory() !== true) return [];
  const own = `${path} ${found.ino} ${found.mtimeNs}`;
  if (depth === 0) return [own];
  const below = readdirSync(join(host, path), { withFileTypes: true }).filter((entry) => entry.isDirectory());
  return [own, ...below.flatMap((entry) => directoriesBelow(host, join(path, entry.name), depth - 1))];
}

function statOrUndefined(path: string): BigIntStats | undefined {
  try {
    return lstatSync(path, { bigint: true, throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

/**
 * Mounts /proc again with a small dentry cache.
 *
 * gVisor caches a thousand entries of /proc that were looked up, each with everything that can be read about its
 * process, long after the process has ended. All of it goes into the sandbox's memory image: a build that starts a few
 * hundred programs makes the image tens of megabytes larger and every resume from it half a second longer. The limit
 * here keeps only what one program reads repeatedly.
 */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

const CACHED_ENTRIES = 4;
const OPTIONS = 'nosuid,nodev,noexec';
/** Unmounts the old /proc first: the cache of a mount that lies under another one stays in memory too. */
const REMOUNT_SCRIPT = `command -v mount && umount -l /proc &&
  { mount -t proc -o ${OPTIONS},dentry_cache_limit=${CACHED_ENTRIES} proc /proc || mount -t proc -o ${OPTIONS} proc /proc; }`;

/** Two mounts take milliseconds; after this long they are stuck. */
const TIMEOUT_MS = 10_000;

/** Only gVisor lists this mount option, so no other system has its /proc unmounted. */
const HAS_CACHE_LIMIT = /^\S+ \/proc proc \S*\bdentry_cache_limit=/m;

/** Returns whether /proc was remounted. It is not on other systems, nor where there is no `mount` program. */
export async function remountProc(): Promise<boolean> {
  if (!HAS_CACHE_LIMIT.test(await readFile('/proc/self/mounts', 'utf8'))) return false;
  return promisify(execFile)('sh', ['-c', REMOUNT_SCRIPT], { timeout: TIMEOUT_MS }).then(
    () => true,
    () => false,
  );
}

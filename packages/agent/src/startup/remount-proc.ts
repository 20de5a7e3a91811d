/**
 * A /proc that forgets.
 *
 * gVisor keeps a thousand of the entries of /proc that somebody has looked at, each with everything there is to be read
 * about its process, long after that has ended. All of it goes into the sandbox's memory image: a build that starts a
 * few hundred programs makes it tens of megabytes larger, and every wake from it half a second longer. So /proc is
 * mounted again, with a limit that only keeps what one program reads again and again.
 */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

const KEPT = 4;
const OPTIONS = 'nosuid,nodev,noexec';
/** The old one goes first: what lies under another mount is remembered too. */
const MOUNT_AGAIN = `command -v mount && umount -l /proc &&
  { mount -t proc -o ${OPTIONS},dentry_cache_limit=${KEPT} proc /proc || mount -t proc -o ${OPTIONS} proc /proc; }`;

/** Two mounts of nothing; an agent that waited for longer would wait for ever. */
const BOUND_MS = 10_000;

/** No other system has this among its options, so no other loses its /proc. */
const REMEMBERS = /^\S+ \/proc proc \S*\bdentry_cache_limit=/m;

/** Whether it is so: it is not where there is no program to mount it with. */
export async function mountLeanProc(): Promise<boolean> {
  if (!REMEMBERS.test(await readFile('/proc/self/mounts', 'utf8'))) return false;
  return promisify(execFile)('sh', ['-c', MOUNT_AGAIN], { timeout: BOUND_MS }).then(
    () => true,
    () => false,
  );
}

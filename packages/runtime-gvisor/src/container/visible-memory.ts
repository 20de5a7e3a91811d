/**
 * Makes runsc show a guest the memory that it may use.
 *
 * runsc takes the total memory of a guest from the host's /proc/meminfo when it creates the sentry. No option, no field of
 * the OCI spec and no memory image changes it later. (It would also respect a control group, but only one that it manages
 * itself.) So the command that creates the sentry runs in a mount namespace of its own, in which a file of the bundle
 * covers /proc/meminfo. A prepared restore reads the file when its image is known, so the limit need not be known before.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { mapWriteErrors } from '@torpor/runtime-shared';

/** The script is constant; names are passed as arguments. */
const COVER = 'mount --bind "$1" /proc/meminfo && shift && exec "$@"';

function memoryFile(bundle: string): string {
  return join(bundle, 'meminfo');
}

/** To be called before the sentry is created. Writes in place: the file may be mounted already. */
export async function setVisibleMemory(bundle: string, memoryMb: number): Promise<void> {
  const file = memoryFile(bundle);
  await mapWriteErrors(file, () => writeFile(file, `MemTotal: ${memoryMb * 1024} kB\n`));
}

/**
 * Wraps the command that creates the sentry. Mounts below shared directories appear in the new namespace too, and no
 * process stays in it: sentry and gofer change to roots of their own.
 */
export function withVisibleMemory(
  bundle: string,
  command: readonly string[],
): readonly [string, ...string[]] {
  const unshare = ['unshare', '--mount', '--propagation', 'slave'] as const;
  return [...unshare, 'sh', '-c', COVER, 'sh', memoryFile(bundle), ...command];
}

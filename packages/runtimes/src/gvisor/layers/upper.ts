/** What an open layer needs before its first mount. */
import { chmod, chown, lstat, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { exists } from './exists.ts';
import { FILES, WORK } from './layer-directory.ts';
import { conflict, type Place } from './layer-failure.ts';

/** Node cannot set a time to the nanosecond, and the one program to do it may as well go on to the next. */
const AND_THEN = 'touch -m -r "$1" -- "$2" && shift 2 && exec "$@"';

/**
 * Makes the top of the upper look like the top of the layer below it, because that is what the sandbox sees as
 * its `/`. Only once: at a later mount the top is what the sandbox made of it. Resolves with the words that do the
 * rest of it, to be put before the command that mounts.
 */
export async function prepareUpper(directory: string, below: string, place: Place): Promise<string[]> {
  const [work, top] = [join(directory, WORK), join(directory, FILES)];
  if (await exists(work)) return [];
  const { mode, uid, gid } = await lstat(below);
  if (!(await exists(top))) throw conflict(place, 'is not there');
  await chown(top, uid, gid);
  await chmod(top, mode & 0o7777);
  await mkdir(work, { mode: 0o700 });
  return ['sh', '-c', AND_THEN, 'sh', below, top];
}

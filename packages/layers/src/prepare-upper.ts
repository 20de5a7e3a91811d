/** Prepares an open layer for its first mount. */
import { chmod, chown, lstat, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { exists, isMissing, programOutput } from '@torpor/host';
import { FILES, WORK } from './layer-directory.ts';
import { conflict, type Place } from './layer-failure.ts';

/**
 * Gives the top directory of the upper the mode and owner of the layer below it, because the sandbox sees the top
 * directory of the upper as `/`. Does nothing after the first mount, because the sandbox may have changed them since, and
 * then resolves to false.
 */
export async function prepareUpper(directory: string, below: string, place: Place): Promise<boolean> {
  const [work, top] = [join(directory, WORK), join(directory, FILES)];
  const [isPrepared, now, { mode, uid, gid }] = await Promise.all([
    exists(work),
    lstat(top).catch((thrown: unknown) => {
      if (isMissing(thrown)) return undefined;
      throw thrown;
    }),
    lstat(below),
  ]);
  if (isPrepared) return false;
  if (now === undefined) throw conflict(place, 'is not there');
  const isOwned = now.uid === uid && now.gid === gid;
  if (!isOwned) await chown(top, uid, gid);
  // A change of the owner can clear mode bits.
  if (!isOwned || now.mode !== mode) await chmod(top, mode & 0o7777);
  await mkdir(work, { mode: 0o700 });
  return true;
}

/** Copies the mtime of `below` with `touch`, because Node's `utimes` loses nanoseconds. */
export async function copyMtime(directory: string, below: string): Promise<void> {
  await programOutput('touch', ['-m', '-r', below, '--', join(directory, FILES)]);
}

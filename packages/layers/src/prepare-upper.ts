/** Prepares an open layer for its first mount. */
import { chmod, chown, lstat, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { exists, isMissing, programOutput } from '@torpor/host';
import { FILES, WORK } from './layer-directory.ts';
import { conflict, type Place } from './layer-failure.ts';

/**
 * Gives the top directory of the upper the mode and owner of the layer below it, because the sandbox sees the upper's as its
 * `/`. Only before the first mount, for later the sandbox may have changed them. Resolves to false when that was done before.
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

/** The time too. Node cannot set a time to the nanosecond. */
export async function copyMtime(directory: string, below: string): Promise<void> {
  await programOutput('touch', ['-m', '-r', below, '--', join(directory, FILES)]);
}

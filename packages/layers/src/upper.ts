/** What an open layer needs before its first mount. */
import { chmod, chown, lstat, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing } from '@torpor/host';
import { exists } from './exists.ts';
import { FILES, WORK } from './layer-directory.ts';
import { conflict, type Place } from './layer-failure.ts';
import { run } from './program.ts';

/**
 * Makes the top of the upper look like the top of the layer below it, because that is what the sandbox sees as
 * its `/`. Only once: at a later mount the top is what the sandbox made of it. False when that was before.
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
  // A new owner may have taken some of it away.
  if (!isOwned || now.mode !== mode) await chmod(top, mode & 0o7777);
  await mkdir(work, { mode: 0o700 });
  return true;
}

/** The rest of it. Node cannot set a time to the nanosecond. */
export async function matchTime(directory: string, below: string): Promise<void> {
  await run('touch', ['-m', '-r', below, '--', join(directory, FILES)]);
}

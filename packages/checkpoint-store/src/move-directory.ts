/** Moves a directory of an earlier layout to its new place. Nothing is copied or deleted, so a crash loses nothing. */
import { lstat, readdir, rename, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { errnoOf, isMissing, syncDirectory } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

/**
 * Moves a directory by one rename. When the target is not empty, moves each name by one rename. Does nothing when there is
 * no directory at `from`.
 */
export async function moveDirectory(from: string, to: string): Promise<void> {
  if ((await kindOf(from)) !== 'directory') return;
  try {
    await rename(from, to);
    await syncDirectory(dirname(to));
    await syncDirectory(dirname(from));
  } catch (thrown) {
    const errno = errnoOf(thrown);
    if (errno === 'EXDEV') throw otherFileSystem(from, to, thrown);
    if (errno !== 'ENOTEMPTY' && errno !== 'EEXIST') throw thrown;
    await moveEach(from, to);
  }
}

async function moveEach(from: string, to: string): Promise<void> {
  for (const name of await readdir(from)) {
    // A name that exists in both places is not moved, so that nothing is overwritten. The error below reports it.
    if ((await kindOf(join(to, name))) === undefined) await rename(join(from, name), join(to, name));
  }
  await syncDirectory(to);
  await syncDirectory(from);
  const left = await readdir(from);
  if (left.length === 0) return rmdir(from);
  throw new TorporError('conflict', `${from} and ${to} both have ${left.slice(0, 3).join(', ')}.`, {
    hint: `Compare them, and keep one of each under ${to}.`,
    details: { from, to, names: left.slice(0, 10) },
  });
}

/** Does not follow a symbolic link: it is `other`. */
export async function kindOf(path: string): Promise<'directory' | 'other' | undefined> {
  try {
    return (await lstat(path)).isDirectory() ? 'directory' : 'other';
  } catch (thrown) {
    if (isMissing(thrown)) return undefined;
    throw thrown;
  }
}

function otherFileSystem(from: string, to: string, cause: unknown): TorporError {
  return new TorporError('conflict', `${from} and ${to} are on different file systems.`, {
    hint: `The checkpoint store keeps them now. Stop the server and every sandbox, then move ${from} to ${to}.`,
    details: { from, to },
    cause,
  });
}

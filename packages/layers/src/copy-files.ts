/** Copies the files of a layer. */
import { constants } from 'node:fs';
import { copyFile, mkdtemp, rm, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { programOutput } from '@torpor/host';

/**
 * Copies a directory as overlayfs wrote it. `to` is an empty directory, and is replaced.
 *
 * The attributes are named one by one, because `cp --archive` does not report an attribute that it could not copy. `cp`
 * fails for paths that are longer than the kernel accepts; the caller then does without the copy.
 */
export async function copyFiles(from: string, to: string, signal?: AbortSignal): Promise<void> {
  await rmdir(to);
  const attributes = '--preserve=mode,ownership,timestamps,links,xattr';
  const how = ['--recursive', '--no-dereference', attributes, '--reflink=auto', '--sparse=auto'];
  await programOutput('cp', [...how, '--no-target-directory', '--', from, to], { signal });
}

/** Tries it with a small file in a directory of its own. */
export async function canReflink(directory: string): Promise<boolean> {
  const trial = await mkdtemp(join(directory, '.reflink-trial-'));
  try {
    await writeFile(join(trial, 'file'), 'trial');
    await copyFile(join(trial, 'file'), join(trial, 'copy'), constants.COPYFILE_FICLONE_FORCE);
    return true;
  } catch {
    return false;
  } finally {
    await rm(trial, { recursive: true, force: true });
  }
}

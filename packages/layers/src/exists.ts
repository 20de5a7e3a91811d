/** Whether something has this name; a dangling symlink counts. Throws when the disk does not answer. */
import { lstat } from 'node:fs/promises';
import { isMissing } from '@torpor/host';

export async function exists(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return true;
  } catch (thrown) {
    if (isMissing(thrown)) return false;
    throw thrown;
  }
}

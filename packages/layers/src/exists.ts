/** Whether something has this name, be it a link that leads nowhere. A disk that does not answer is no answer. */
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

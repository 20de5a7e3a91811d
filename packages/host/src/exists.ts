import type { BigIntStats } from 'node:fs';
import * as nodeFs from 'node:fs/promises';
import { isMissing } from './errno.ts';

/** The file system call of `exists`. Tests pass an implementation that fails. */
export interface ExistsFs {
  lstat(path: string, options: { readonly bigint: true }): Promise<BigIntStats>;
}

/** Whether the path exists. A dangling symbolic link exists. Throws every error but `ENOENT`: it does not prove absence. */
export async function exists(path: string, fs: ExistsFs = nodeFs): Promise<boolean> {
  try {
    await fs.lstat(path, { bigint: true });
    return true;
  } catch (thrown) {
    if (isMissing(thrown)) return false;
    throw thrown;
  }
}

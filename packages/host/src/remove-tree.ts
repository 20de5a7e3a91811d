/**
 * Deletes a directory tree that a sandbox wrote. Such a tree may contain directories without write permission (package
 * caches have them) and paths that are longer than the kernel accepts in one call (made step by step).
 */
import type { BigIntStats } from 'node:fs';
import * as nodeFs from 'node:fs/promises';
import { errnoOf, isMissing } from './errno.ts';

/** The file system calls of `removeTree`. Tests pass an implementation that fails. */
export interface RemoveTreeFs {
  rm(path: string, options: { readonly recursive: true; readonly force: true }): Promise<void>;
  chmod(path: Buffer, mode: number): Promise<void>;
  readdir(path: Buffer, options: { readonly encoding: 'buffer' }): Promise<Buffer[]>;
  lstat(path: Buffer, options: { readonly bigint: true }): Promise<BigIntStats>;
  rename(from: Buffer, to: Buffer): Promise<void>;
}

/** Below the kernel's limit of 4096 bytes by more than one file name (255) and the `lifted-…` prefix. */
const MAX_PATH_LENGTH = 3072;

/**
 * Permissions and lengths are repaired before the second attempt. `ENOTEMPTY` means that a dying process created a file
 * during the first attempt.
 */
const REPAIRABLE: readonly (string | undefined)[] = ['EACCES', 'EPERM', 'ENAMETOOLONG', 'ENOTEMPTY'];

/** Does nothing when the path does not exist. Never follows a symbolic link. */
export async function removeTree(path: string, fs: RemoveTreeFs = nodeFs): Promise<void> {
  try {
    await fs.rm(path, { recursive: true, force: true });
  } catch (thrown) {
    if (!REPAIRABLE.includes(errnoOf(thrown))) throw thrown;
    await makeRemovable(path, fs);
    await fs.rm(path, { recursive: true, force: true });
  }
}

/**
 * Makes every directory writable and moves directories that are too deep to the top, where their paths are short.
 * A directory that cannot be changed is skipped: the second `rm` reports its error.
 */
async function makeRemovable(top: string, fs: RemoveTreeFs): Promise<void> {
  const directories = [Buffer.from(top)];
  let lifted = 0;
  for (let directory = directories.pop(); directory !== undefined; directory = directories.pop()) {
    await fs.chmod(directory, 0o700).catch(() => {});
    for (const name of await fs.readdir(directory, { encoding: 'buffer' }).catch(() => [])) {
      let path = Buffer.concat([directory, Buffer.from('/'), name]);
      const found = await fs.lstat(path, { bigint: true }).catch(() => undefined);
      if (found?.isDirectory() !== true) continue;
      if (path.length > MAX_PATH_LENGTH) {
        const short = await unusedName(top, () => lifted++, fs);
        await fs.chmod(path, 0o700);
        await fs.rename(path, short);
        path = short;
      }
      directories.push(path);
    }
  }
}

/** An earlier removal that was interrupted may have used the first names already. */
async function unusedName(top: string, next: () => number, fs: RemoveTreeFs): Promise<Buffer<ArrayBuffer>> {
  for (;;) {
    const name = Buffer.from(`${top}/lifted-${next()}`);
    try {
      await fs.lstat(name, { bigint: true });
    } catch (thrown) {
      if (isMissing(thrown)) return name;
      throw thrown;
    }
  }
}

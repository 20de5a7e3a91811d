/**
 * Deletes a directory with everything that a sandbox left in it, including directories without write permission (package
 * caches have them) and paths longer than the kernel accepts (a sandbox can make them step by step).
 */
import { errnoOf } from './storage-error.ts';
import type { StoreFs } from './store-fs.ts';

/** Less than the kernel's 4096 by more than the longest name and a few added bytes. */
const LONGEST_PATH = 3072;

const MENDABLE: readonly (string | undefined)[] = ['EACCES', 'EPERM', 'ENAMETOOLONG'];

/** Does nothing when the path does not exist. */
export async function removeTree(fs: StoreFs, path: string): Promise<void> {
  try {
    await fs.rm(path, { recursive: true, force: true });
  } catch (error) {
    if (!MENDABLE.includes(errnoOf(error))) throw error;
    await makeRemovable(fs, path);
    await fs.rm(path, { recursive: true, force: true });
  }
}

/** Makes every directory writable, and moves directories that are too deep to the top, where their paths are short. */
async function makeRemovable(fs: StoreFs, top: string): Promise<void> {
  const directories = [Buffer.from(top)];
  let lifted = 0;
  for (let directory = directories.pop(); directory !== undefined; directory = directories.pop()) {
    await fs.chmod(directory, 0o700);
    for (const name of await fs.readdir(directory, { encoding: 'buffer' })) {
      let path = Buffer.concat([directory, Buffer.from('/'), name]);
      if (!(await fs.lstat(path, { bigint: true })).isDirectory()) continue;
      if (path.length > LONGEST_PATH) {
        const short = await freeName(fs, top, () => lifted++);
        await fs.chmod(path, 0o700);
        await fs.rename(path, short);
        path = short;
      }
      directories.push(path);
    }
  }
}

/** An earlier removal that was interrupted may have used some names already. */
async function freeName(fs: StoreFs, top: string, next: () => number): Promise<Buffer<ArrayBuffer>> {
  for (;;) {
    const name = Buffer.from(`${top}/lifted-${next()}`);
    try {
      await fs.lstat(name, { bigint: true });
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return name;
      throw error;
    }
  }
}

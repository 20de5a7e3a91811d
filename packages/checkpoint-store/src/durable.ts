/** Writes that survive a power loss once their promise has resolved. */
import { constants } from 'node:fs';
import { dirname } from 'node:path';
import { syncDirectory } from '@torpor/host';
import { READ_PLAIN, type StoreFs, withFile } from './store-fs.ts';

const { O_WRONLY, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants;

/** Makes the content of the file durable. Its name is durable only after its directory is synced too. */
export async function writeSynced(fs: StoreFs, path: string, text: string): Promise<void> {
  await withFile(fs, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, async (file) => {
    await file.writeFile(text);
    await file.sync();
  });
}

export async function syncFile(fs: StoreFs, path: string | Buffer): Promise<void> {
  await withFile(fs, path, READ_PLAIN, (file) => file.sync());
}

/** Creates a directory and its missing parents, and makes their names durable. */
export async function makeDirectory(fs: StoreFs, path: string): Promise<void> {
  const first = await fs.mkdir(path, { recursive: true, mode: 0o700 });
  if (first === undefined) return;
  for (let made = path; ; made = dirname(made)) {
    await syncDirectory(dirname(made), fs);
    if (made === first) return;
  }
}

/** Writes that survive a loss of power once their promise has resolved. */
import { constants } from 'node:fs';
import { open, rename } from 'node:fs/promises';
import { dirname } from 'node:path';

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants;

/** Makes the names in a directory durable: what was created in it, renamed into it or out of it. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

/** Either the whole text is there under this name or what was there before. */
export async function writeWhole(path: string, text: string): Promise<void> {
  const temporary = `${path}.tmp`;
  const file = await open(temporary, 'w', 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, path);
  await syncDirectory(dirname(path));
}

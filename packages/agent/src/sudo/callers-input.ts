/**
 * The standard input of whoever called `sudo`, given to the command itself. Passing on what was read would
 * take from a loop like `while read …; do sudo …; done` the lines that it still wants to read.
 */
import { constants } from 'node:fs';
import { type FileHandle, open, readFile, readlink, stat } from 'node:fs/promises';

/** Reading up to where the caller stands is not worth it beyond this. */
const MAX_SKIPPED = 64 * 1024 * 1024;
const CHUNK = 1024 * 1024;

/** Undefined when it cannot be opened a second time, as a socket: then it has to be passed on after all. */
export async function openCallersInput(pid: number, proc = '/proc'): Promise<FileHandle | undefined> {
  const path = `${proc}/${pid}/fd/0`;
  try {
    const [found, name] = await Promise.all([stat(path), readlink(path)]);
    // Opening a fifo that has a name waits for somebody to write into it.
    const isUsable = found.isFIFO() ? name.startsWith('pipe:') : found.isFile() || found.isCharacterDevice();
    if (!isUsable) return undefined;
    const handle = await open(path, constants.O_RDONLY | constants.O_NOCTTY);
    if (!found.isFile() || (await skip(handle, await positionOf(pid, proc)))) return handle;
    await handle.close();
    return undefined;
  } catch {
    return undefined;
  }
}

async function positionOf(pid: number, proc: string): Promise<number> {
  const text = await readFile(`${proc}/${pid}/fdinfo/0`, 'utf8');
  return Number(/^pos:\s*(\d+)/m.exec(text)?.[1] ?? Number.NaN);
}

/** Node cannot set the position of a file that it hands on, but reading moves it. */
async function skip(handle: FileHandle, position: number): Promise<boolean> {
  if (!(position <= MAX_SKIPPED)) return false;
  const chunk = Buffer.alloc(Math.min(position, CHUNK));
  for (let left = position; left > 0; ) {
    const { bytesRead } = await handle.read(chunk, 0, Math.min(left, CHUNK), null);
    if (bytesRead === 0) return true;
    left -= bytesRead;
  }
  return true;
}

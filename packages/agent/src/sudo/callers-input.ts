/**
 * Opens the stdin of the calling program for the command itself. If `sudo` read the input and forwarded it, a loop like
 * `while read …; do sudo …; done` would lose the lines that it has not read yet.
 */
import { constants } from 'node:fs';
import { type FileHandle, open, readFile, readlink, stat } from 'node:fs/promises';

/** Beyond this position, reading up to the caller's position takes too long. */
const MAX_SKIPPED = 64 * 1024 * 1024;
const CHUNK = 1024 * 1024;

/** Undefined when the input cannot be opened a second time, such as a socket. Then `sudo` has to forward it. */
export async function openCallersInput(pid: number, proc = '/proc'): Promise<FileHandle | undefined> {
  const path = `${proc}/${pid}/fd/0`;
  try {
    const [found, name] = await Promise.all([stat(path), readlink(path)]);
    // Opening a named FIFO blocks until a writer opens it.
    const isUsable = found.isFIFO() ? name.startsWith('pipe:') : found.isFile() || found.isCharacterDevice();
    if (!isUsable) return undefined;
    const handle = await open(path, constants.O_RDONLY | constants.O_NOCTTY);
    if (!found.isFile() || (await skipTo(handle, await readPosition(pid, proc)))) return handle;
    await handle.close();
    return undefined;
  } catch {
    return undefined;
  }
}

async function readPosition(pid: number, proc: string): Promise<number> {
  const text = await readFile(`${proc}/${pid}/fdinfo/0`, 'utf8');
  return Number(/^pos:\s*(\d+)/m.exec(text)?.[1] ?? Number.NaN);
}

/** Node cannot seek in a file that a child inherits, but reading moves the position. */
async function skipTo(handle: FileHandle, position: number): Promise<boolean> {
  if (!(position <= MAX_SKIPPED)) return false;
  const chunk = Buffer.alloc(Math.min(position, CHUNK));
  for (let left = position; left > 0; ) {
    const { bytesRead } = await handle.read(chunk, 0, Math.min(left, CHUNK), null);
    if (bytesRead === 0) return true;
    left -= bytesRead;
  }
  return true;
}

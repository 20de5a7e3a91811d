/** Writes that survive a power loss once their promise has resolved. */
import { constants } from 'node:fs';
import * as nodeFs from 'node:fs/promises';
import { dirname } from 'node:path';

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants;

/** The file system calls of `syncDirectory`. Tests pass an implementation that fails. */
export interface SyncDirectoryFs {
  open(path: string | Buffer, flags: number): Promise<{ sync(): Promise<void>; close(): Promise<void> }>;
}

/** Makes the names in a directory durable: every creation in it and every rename into it or out of it. */
export async function syncDirectory(path: string | Buffer, fs: SyncDirectoryFs = nodeFs): Promise<void> {
  const directory = await fs.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

export interface ReplacedFile {
  /** Resolves when the new text survives a power loss. */
  readonly durable: Promise<void>;
}

/**
 * Replaces a file, and resolves before that is durable: from then on every process, and the next one after a crash of this
 * process, reads the new text. A power loss before `durable` resolves may leave the previous file, the new one, or a damaged
 * one. The caller awaits `durable`.
 */
export async function replaceFile(path: string, text: string): Promise<ReplacedFile> {
  const temporary = `${path}.tmp`;
  const file = await nodeFs.open(temporary, 'w', 0o600);
  try {
    await file.writeFile(text);
    await nodeFs.rename(temporary, path);
  } catch (thrown) {
    await file.close();
    throw thrown;
  }
  const durable = (async () => {
    try {
      await file.sync();
    } finally {
      await file.close();
    }
    await syncDirectory(dirname(path));
  })();
  // The caller may await it late.
  durable.catch(() => {});
  return { durable };
}

/** Replaces a file atomically: a crash leaves either the whole new text or the previous file. */
export async function writeFileDurably(path: string, text: string): Promise<void> {
  const temporary = `${path}.tmp`;
  const file = await nodeFs.open(temporary, 'w', 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  await nodeFs.rename(temporary, path);
  await syncDirectory(dirname(path));
}

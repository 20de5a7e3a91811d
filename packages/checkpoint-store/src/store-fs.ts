/**
 * The file system calls that a directory store makes, and no others: what a test can make fail.
 * Names inside a checkpoint are bytes, because a guest may choose names that are not UTF-8.
 */
import type { BigIntStats } from 'node:fs';
import { constants } from 'node:fs';
import * as nodeFs from 'node:fs/promises';

export interface StoreFile {
  stat(): Promise<{ readonly size: number }>;
  read(
    buffer: Uint8Array,
    offset: number,
    length: number,
    position: number | null,
  ): Promise<{ readonly bytesRead: number }>;
  readFile(): Promise<Buffer>;
  writeFile(text: string): Promise<void>;
  sync(): Promise<void>;
  close(): Promise<void>;
}

export interface StoreFs {
  open(path: string | Buffer, flags: number, mode?: number): Promise<StoreFile>;
  /** Resolves, when recursive, to the first directory it made. */
  mkdir(
    path: string,
    options: { readonly recursive?: boolean; readonly mode: number },
  ): Promise<string | undefined>;
  readdir(path: string | Buffer, options: { readonly encoding: 'buffer' }): Promise<Buffer[]>;
  lstat(path: string | Buffer, options: { readonly bigint: true }): Promise<BigIntStats>;
  readlink(path: Buffer, options: { readonly encoding: 'buffer' }): Promise<Buffer>;
  chmod(path: Buffer, mode: number): Promise<void>;
  rename(from: string | Buffer, to: string | Buffer): Promise<void>;
  rm(path: string, options: { readonly recursive: true; readonly force: true }): Promise<void>;
  statfs(path: string): Promise<{ readonly bavail: number; readonly blocks: number; readonly bsize: number }>;
}

export const realFs: StoreFs = nodeFs;

/**
 * For opening what a guest may have put there: never through a symlink, and never waiting for the other
 * end of a fifo.
 */
export const READ_PLAIN = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** Opens, works, closes; an error of `close` counts, since some file systems report a failed write there. */
export async function withFile<T>(
  fs: StoreFs,
  path: string | Buffer,
  flags: number,
  work: (file: StoreFile) => Promise<T>,
): Promise<T> {
  const file = await fs.open(path, flags, 0o600);
  let result: T;
  try {
    result = await work(file);
  } catch (error) {
    await file.close().catch(() => {});
    throw error;
  }
  await file.close();
  return result;
}

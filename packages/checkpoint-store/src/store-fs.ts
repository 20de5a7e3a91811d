/**
 * All file system calls that the store makes for checkpoints, as an interface, so that a test can make each of them fail.
 * Names inside a checkpoint are bytes, because a sandbox may choose names that are not UTF-8.
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
  /** With `recursive`, resolves to the first directory that was made. */
  mkdir(
    path: string,
    options: { readonly recursive?: boolean; readonly mode: number },
  ): Promise<string | undefined>;
  readdir(path: string | Buffer, options: { readonly encoding: 'buffer' }): Promise<Buffer[]>;
  lstat(path: string | Buffer, options: { readonly bigint: true }): Promise<BigIntStats>;
  /** Seconds. */
  utimes(path: string, atime: number, mtime: number): Promise<void>;
  readlink(path: Buffer, options: { readonly encoding: 'buffer' }): Promise<Buffer>;
  chmod(path: Buffer, mode: number): Promise<void>;
  rename(from: string | Buffer, to: string | Buffer): Promise<void>;
  rm(path: string, options: { readonly recursive: true; readonly force: true }): Promise<void>;
  statfs(path: string): Promise<{ readonly bavail: number; readonly blocks: number; readonly bsize: number }>;
}

export const realFs: StoreFs = nodeFs;

/**
 * Flags for opening an entry that a sandbox made: never follow a symlink, and never wait for the other end of a fifo.
 */
export const READ_PLAIN = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** Opens a file, runs `work` and closes the file. A failure of `close` counts: some file systems report failed writes there. */
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

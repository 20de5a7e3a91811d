/** Copies the content of one file: shares blocks where the file system can, keeps holes, and can abort large copies. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type BigIntStats, constants } from 'node:fs';
import { chmod, copyFile, type FileHandle, open } from 'node:fs/promises';
import { errnoOf } from '@torpor/host';

/** Files up to this size are copied in one system call, which cannot be aborted. */
const SMALL = 16n * 1024n * 1024n;
/** Holes in smaller files are not worth starting `cp`. */
const SMALLEST_SPARSE = 1024n * 1024n;
const CHUNK = 1024 * 1024;

/** The copy has the mode of the source. The caller sets owner and times. */
export async function copyContent(
  from: Buffer,
  to: Buffer,
  stats: BigIntStats,
  signal: AbortSignal,
): Promise<void> {
  const copy = () =>
    stats.size <= SMALL && !isSparse(stats)
      ? copyFile(from, to, constants.COPYFILE_FICLONE)
      : copyBig(from, to, stats, signal);
  try {
    await copy();
  } catch (thrown) {
    if (errnoOf(thrown) !== 'EACCES') throw thrown;
    await whileReadable(from, stats, copy);
  }
}

function isSparse({ size, blocks }: BigIntStats): boolean {
  return blocks * 512n < size && size > SMALLEST_SPARSE;
}

/** Makes a file readable whose mode excludes its owner, and restores the mode afterwards. */
async function whileReadable(path: Buffer, stats: BigIntStats, work: () => Promise<void>): Promise<void> {
  const mode = Number(stats.mode & 0o7777n);
  await chmod(path, mode | 0o400);
  try {
    await work();
  } finally {
    await chmod(path, mode);
  }
}

async function copyBig(from: Buffer, to: Buffer, stats: BigIntStats, signal: AbortSignal): Promise<void> {
  const source = await open(from, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const target = await open(to, 'w', 0o600);
    try {
      const isDone = await copyByProgram(source, target, signal);
      if (!isDone) await copyByChunks(source, target, Number(stats.size), signal);
      await target.chmod(Number(stats.mode & 0o7777n));
    } finally {
      await target.close();
    }
  } finally {
    await source.close();
  }
}

/** `cp` can find holes (SEEK_HOLE), which Node cannot. False when `cp` failed for any reason. */
async function copyByProgram(source: FileHandle, target: FileHandle, signal: AbortSignal): Promise<boolean> {
  if (process.platform !== 'linux') return false;
  signal.throwIfAborted();
  const args = ['--reflink=auto', '--sparse=auto', '/dev/fd/3', '/dev/fd/4'];
  const child = spawn('cp', args, { stdio: ['ignore', 'ignore', 'ignore', source.fd, target.fd], signal });
  const ended = await once(child, 'close').catch(() => [1]);
  signal.throwIfAborted();
  return ended[0] === 0;
}

async function copyByChunks(
  source: FileHandle,
  target: FileHandle,
  size: number,
  signal: AbortSignal,
): Promise<void> {
  const buffer = Buffer.alloc(CHUNK);
  const zeros = Buffer.alloc(CHUNK);
  await target.truncate(0);
  for (let at = 0; ; ) {
    signal.throwIfAborted();
    const { bytesRead } = await source.read(buffer, 0, CHUNK, at);
    if (bytesRead === 0) break;
    const chunk = buffer.subarray(0, bytesRead);
    if (!chunk.equals(zeros.subarray(0, bytesRead))) await writeAll(target, chunk, at);
    at += bytesRead;
  }
  await target.truncate(size);
}

async function writeAll(target: FileHandle, chunk: Buffer, at: number): Promise<void> {
  for (let done = 0; done < chunk.length; ) {
    const { bytesWritten } = await target.write(chunk, done, chunk.length - done, at + done);
    done += bytesWritten;
  }
}

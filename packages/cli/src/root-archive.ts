/** The root filesystem of a template for upload: an archive file, or a directory that is packed while it is sent. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { openAsBlob } from 'node:fs';
import { stat } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { CliError } from './failure.ts';

export interface RootArchive {
  readonly body: Blob | ReadableStream<Uint8Array>;
  /** The reason of a failure. The sender sees only a broken stream. */
  failure(): unknown;
  close(): void;
}

export async function openRoot(path: string): Promise<RootArchive> {
  const found = await stat(path);
  if (found.isDirectory()) return packDirectory(path);
  if (!found.isFile()) throw new CliError('FILE_ERROR', `${path} is neither a directory nor an archive.`);
  return { body: await openAsBlob(path), failure: () => undefined, close: () => {} };
}

/** Numeric owners: the user names are in the root filesystem itself. */
const TAR_OPTIONS = ['--create', '--format=pax', '--one-file-system', '--numeric-owner'];

function packDirectory(directory: string): RootArchive {
  const tar = spawn('tar', [...TAR_OPTIONS, '--directory', directory, '.'], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, LC_ALL: 'C' },
  });
  let failure: unknown;
  const bytes = async function* () {
    try {
      yield* tarOutput(tar, directory);
    } catch (thrown) {
      failure = thrown;
      throw thrown;
    }
  };
  return {
    body: ReadableStream.from(bytes()) as ReadableStream<Uint8Array>,
    failure: () => failure,
    close: () => void tar.kill('SIGKILL'),
  };
}

/** Fails when tar fails, so that an incomplete root is not taken for a complete one. */
async function* tarOutput(tar: ChildProcess, directory: string): AsyncGenerator<Uint8Array> {
  const ended = once(tar, 'close') as Promise<[number | null]>;
  ended.catch(() => {});
  const stderr = text(tar.stderr as Readable);
  yield* tar.stdout as AsyncIterable<Buffer>;
  const [status] = await ended;
  if (status === 0) return;
  throw new CliError('FILE_ERROR', `${directory} cannot be packed: ${(await stderr).trim().slice(0, 500)}`);
}

/** Makes the bottom layer of a template from a directory of the host or from an archive. */
import { createReadStream } from 'node:fs';
import { chmod, open, stat } from 'node:fs/promises';
import { pipeline, type Readable } from 'node:stream';
import { createGunzip, createZstdDecompress } from 'node:zlib';
import { ByteReader, errnoOf, isMissing, ProgramFailure, streamProgram } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';
import { completeRoot } from './complete-root.ts';
import { type UnpackLimits, unpackRoot } from './unpack-root.ts';

export type RootSource = { readonly directory: string } | { readonly archive: string };

export const ROOT_LIMITS: UnpackLimits = { bytes: 32 * 1024 ** 3, entries: 2_000_000 };

/** `into` is an empty directory. After a failure its contents are incomplete. */
export async function makeRoot(
  source: RootSource,
  into: string,
  signal: AbortSignal,
  limits: UnpackLimits = ROOT_LIMITS,
): Promise<void> {
  await mapWriteErrors(into, async () => {
    await chmod(into, 0o755);
    if ('archive' in source) await unpackArchive(source.archive, into, limits, signal);
    else await copyDirectory(source.directory, into, limits, signal);
    await completeRoot(into);
  });
}

async function unpackArchive(
  path: string,
  into: string,
  limits: UnpackLimits,
  signal: AbortSignal,
): Promise<void> {
  const stream = await readArchive(path);
  try {
    await unpackRoot(new ByteReader(stream), into, limits, signal);
  } catch (thrown) {
    throw errnoOf(thrown) === undefined && isPackingError(thrown)
      ? unusable(path, 'it is damaged', thrown)
      : thrown;
  } finally {
    stream.destroy();
  }
}

/** Errors of Node's decompressors have codes of their own and no errno. */
function isPackingError(thrown: unknown): boolean {
  const { code } = thrown as NodeJS.ErrnoException;
  return typeof code === 'string' && /^(Z_|ZSTD_|ERR_)/.test(code);
}

/** Copies through a tar stream, so that directories and archives pass the same checks. */
async function copyDirectory(
  directory: string,
  into: string,
  limits: UnpackLimits,
  signal: AbortSignal,
): Promise<void> {
  const found = await stat(directory).catch(unreadable(directory));
  if (!found.isDirectory()) throw unusable(directory, 'it is not a directory');
  const args = [
    '--create',
    '--format=pax',
    '--one-file-system',
    '--numeric-owner',
    '--directory',
    directory,
    '.',
  ];
  const archive = new ByteReader(streamProgram('tar', args, { signal }));
  try {
    await unpackRoot(archive, into, limits, signal);
    // Reads to the end of the stream, where a failure of `tar` is reported.
    await archive.finish();
  } catch (thrown) {
    throw thrown instanceof ProgramFailure ? unusable(directory, thrown.stderr, thrown) : thrown;
  } finally {
    await archive.close();
  }
}

const MAGIC: readonly (readonly [hex: string, kind: 'gzip' | 'zstd' | 'xz' | 'bzip2'])[] = [
  ['1f8b', 'gzip'],
  ['28b52ffd', 'zstd'],
  ['fd377a585a00', 'xz'],
  ['425a68', 'bzip2'],
];

async function readArchive(path: string): Promise<Readable> {
  const head = await headOf(path);
  const kind = MAGIC.find(([hex]) => head.startsWith(hex))?.[1];
  if (kind === 'xz' || kind === 'bzip2') {
    throw new TorporError('invalid_request', `${path} is compressed with ${kind}, which is not supported.`, {
      hint: `Decompress it first: ${kind === 'xz' ? 'unxz' : 'bunzip2'} ${path}`,
    });
  }
  const file = createReadStream(path, { highWaterMark: 1024 * 1024 });
  if (kind === undefined) return file;
  // The reader of the last stream gets the errors of both.
  return pipeline(file, kind === 'gzip' ? createGunzip() : createZstdDecompress(), () => {});
}

async function headOf(path: string): Promise<string> {
  const file = await open(path).catch(unreadable(path));
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(8), 0, 8, 0);
    return buffer.toString('hex', 0, bytesRead);
  } catch (thrown) {
    return unreadable(path)(thrown);
  } finally {
    await file.close();
  }
}

function unreadable(path: string): (thrown: unknown) => never {
  return (thrown) => {
    if (errnoOf(thrown) === undefined) throw thrown;
    throw unusable(
      path,
      isMissing(thrown) ? 'it does not exist' : `it cannot be read (${errnoOf(thrown)})`,
      thrown,
    );
  };
}

function unusable(path: string, why: string, cause?: unknown): TorporError {
  return new TorporError('invalid_request', `No root can be made from ${path}: ${why}.`, { cause });
}

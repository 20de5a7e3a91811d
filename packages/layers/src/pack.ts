/**
 * Packs a layer as a tar stream, and unpacks it.
 *
 * GNU tar is used because it keeps everything: sub-second times (pax records), whiteouts (devices 0/0), all extended
 * attributes, numeric owners, links, holes, and names of any length and any bytes. Sockets are left out: a socket means
 * nothing without the process that held it.
 *
 * The seal comes last in the stream, so a truncated stream has no seal.
 */
import { mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { exists, streamProgram } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { KEEP_ALL } from './entry-headers.ts';
import { CONTENTS, FILES, SEAL } from './layer-directory.ts';

/** Access and change times are not part of a layer. */
const FORM = ['--format=pax', '--pax-option=delete=atime,delete=ctime', '--sparse'];
/** No warning for sockets. */
const QUIET = ['--warning=no-file-ignored'];

export async function* packDirectory(directory: string, signal?: AbortSignal): AsyncGenerator<Buffer> {
  const members = [FILES, ...((await exists(join(directory, CONTENTS))) ? [CONTENTS] : []), SEAL];
  yield* streamProgram('tar', ['-c', ...KEEP_ALL, ...FORM, ...QUIET, '-C', directory, ...members], {
    signal,
  });
}

/** Packs these entries of a directory, with everything below them. Names are bytes and may be any. */
export async function* packEntries(
  directory: string,
  names: readonly Buffer[],
  signal?: AbortSignal,
): AsyncGenerator<Buffer> {
  const list = ['--null', '--verbatim-files-from', '--files-from=-'];
  const input = names.map((name) => Buffer.concat([Buffer.from('./'), name, Buffer.from([0])]));
  yield* streamProgram('tar', ['-c', ...KEEP_ALL, ...FORM, ...QUIET, '-C', directory, ...list], {
    input,
    signal,
  });
}

/** Unpacks what `packEntries` wrote into an empty directory. Only root can give files to other users. */
export async function unpackEntries(
  directory: string,
  packed: AsyncIterable<Buffer>,
  signal?: AbortSignal,
): Promise<void> {
  const owner = process.getuid?.() === 0 ? ['--same-owner'] : ['--no-same-owner'];
  const args = ['-x', ...KEEP_ALL, '-p', ...owner, '-C', directory];
  for await (const _ of streamProgram('tar', args, { signal, input: packed })) {
    // tar prints nothing here.
  }
}

/** Unpacks into a directory that does not exist yet. The caller checks the seal, which is missing in an incomplete layer. */
export async function unpackDirectory(
  directory: string,
  packed: AsyncIterable<Buffer>,
  signal?: AbortSignal,
): Promise<void> {
  await mkdir(directory, { mode: 0o700 });
  const args = ['-x', ...KEEP_ALL, '-p', '--same-owner', '-C', directory];
  for await (const _ of streamProgram('tar', args, { signal, input: packed })) {
    // tar prints nothing here.
  }
  const unexpected = (await readdir(directory)).filter((name) => ![FILES, CONTENTS, SEAL].includes(name));
  if (unexpected.length === 0) return;
  throw new TorporError(
    'invalid_request',
    `This is not a packed layer: it contains ${unexpected.join(', ')}.`,
  );
}

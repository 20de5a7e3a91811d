/**
 * A layer as a tar stream and back.
 *
 * GNU tar does it, because it alone of what is at hand keeps everything: sub-second times (pax records),
 * whiteouts (devices 0/0), all extended attributes, owners by number, links, holes, names of any length and
 * of any bytes. Sockets are not kept: they mean nothing without the processes that held them.
 *
 * The seal comes last in the stream, so that a stream that was cut short has none.
 */
import { mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { TorporError } from '@torpor/protocol';
import { KEEP_ALL } from './entry-headers.ts';
import { exists } from './exists.ts';
import { CONTENTS, FILES, SEAL } from './layer-directory.ts';
import { output } from './program.ts';

/** Dates of looking and of changing attributes say nothing about the layer. */
const FORM = ['--format=pax', '--pax-option=delete=atime,delete=ctime', '--sparse'];
/** Sockets are passed over without a word. */
const QUIET = ['--warning=no-file-ignored'];

export async function* packDirectory(directory: string, signal?: AbortSignal): AsyncGenerator<Buffer> {
  const members = [FILES, ...((await exists(join(directory, CONTENTS))) ? [CONTENTS] : []), SEAL];
  yield* output('tar', ['-c', ...KEEP_ALL, ...FORM, ...QUIET, '-C', directory, ...members], { signal });
}

/** Into a directory that is not there yet. Whether it is all there is for the seal to say. */
export async function unpackDirectory(
  directory: string,
  packed: AsyncIterable<Buffer>,
  signal?: AbortSignal,
): Promise<void> {
  await mkdir(directory, { mode: 0o700 });
  const args = ['-x', ...KEEP_ALL, '-p', '--same-owner', '-C', directory];
  for await (const _ of output('tar', args, { signal }, packed)) {
    // It prints nothing.
  }
  const strangers = (await readdir(directory)).filter((name) => ![FILES, CONTENTS, SEAL].includes(name));
  if (strangers.length === 0) return;
  throw new TorporError('invalid_request', `This is no packed layer: it holds ${strangers.join(', ')}.`);
}

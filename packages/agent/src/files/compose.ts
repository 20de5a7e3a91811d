/** POST /files/compose: one file out of several, which are gone afterwards. */
import { createReadStream } from 'node:fs';
import { rm, stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { TorporError } from '@torpor/protocol';
import { onPath } from '../agent-failures.ts';
import type { Owner } from './ownership.ts';
import type { Place } from './paths.ts';
import { receive, type UploadParts } from './upload.ts';

export async function compose(
  sources: readonly Place[],
  destination: Place,
  owner: Owner | undefined,
  parts: UploadParts,
): Promise<void> {
  if (sources.length === 0) throw new TorporError('invalid_request', 'There is nothing to compose.');
  for (const source of sources) {
    const found = await onPath(source.path, () => stat(source.real));
    if (!found.isFile()) throw new TorporError('invalid_request', `${source.path} is not a regular file.`);
  }
  await receive({ place: destination, owner, content: Readable.from(inOrder(sources)) }, parts);
  const used = sources.filter(({ real }) => real !== destination.real);
  const change = await parts.watches.begin(used.map(({ real }) => real));
  try {
    for (const { path, real } of used) await onPath(path, () => rm(real, { force: true }));
  } finally {
    await change.told();
  }
}

async function* inOrder(sources: readonly Place[]): AsyncGenerator<Buffer> {
  for (const source of sources) yield* createReadStream(source.real) as AsyncIterable<Buffer>;
}

/** POST /files/compose: one file out of several, which are gone afterwards. */
import { createReadStream } from 'node:fs';
import { rm, stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { TorporError } from '@torpor/protocol';
import { onPath } from './agent-failures.ts';
import type { Place } from './paths.ts';
import { receive } from './upload.ts';

export async function compose(
  sources: readonly Place[],
  destination: Place,
  newId: () => string,
): Promise<void> {
  if (sources.length === 0) throw new TorporError('invalid_request', 'There is nothing to compose.');
  for (const source of sources) {
    const found = await onPath(source.path, () => stat(source.real));
    if (!found.isFile()) throw new TorporError('invalid_request', `${source.path} is not a regular file.`);
  }
  await receive({ place: destination, content: Readable.from(inOrder(sources)) }, newId);
  for (const source of sources) {
    if (source.real !== destination.real) await onPath(source.path, () => rm(source.real, { force: true }));
  }
}

async function* inOrder(sources: readonly Place[]): AsyncGenerator<Buffer> {
  for (const source of sources) yield* createReadStream(source.real) as AsyncIterable<Buffer>;
}

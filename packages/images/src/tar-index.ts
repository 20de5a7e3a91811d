/** Where the files of an archive are, so that they can be read in any order. */
import { createReadStream } from 'node:fs';
import { posix } from 'node:path';
import { ByteReader, nextTarHeader, tarContent } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { unusable } from './unusable.ts';

/** Docker's archives of a hundred layers have a few hundred entries. */
const MAX_ENTRIES = 100_000;
const MAX_LINKS = 8;

type Entry = { readonly at: number; readonly size: number } | { readonly linkTo: string };

export interface TarIndex {
  /** Undefined when the archive has no such file. */
  find(path: string): { readonly size: number; read(): AsyncIterable<Buffer> } | undefined;
}

class CountingReader extends ByteReader {
  /** How many bytes were taken. */
  at = 0;

  override async take(length: number): Promise<Buffer> {
    const taken = await super.take(length);
    this.at += taken.length;
    return taken;
  }
}

export async function indexTar(path: string, signal: AbortSignal): Promise<TarIndex> {
  const entries = new Map<string, Entry>();
  const stream = createReadStream(path, { highWaterMark: 1024 * 1024, signal });
  const archive = new CountingReader(stream as AsyncIterable<Buffer>);
  try {
    await refuseCompressed(path);
    for (;;) {
      const header = await nextTarHeader(archive);
      if (header === undefined) break;
      const name = posix.normalize(header.path);
      const isFile = header.type === '0' || header.type === '\0' || header.type === '7';
      if (isFile) entries.set(name, { at: archive.at, size: header.size });
      if (header.type === '2')
        entries.set(name, { linkTo: posix.join(posix.dirname(name), header.linkTarget) });
      if (header.type === '1') entries.set(name, { linkTo: posix.normalize(header.linkTarget) });
      if (entries.size > MAX_ENTRIES) throw unusable(`its archive has more than ${MAX_ENTRIES} entries`);
      for await (const _ of tarContent(archive, isFile ? header.size : 0));
    }
  } finally {
    stream.destroy();
  }
  return { find: (wanted) => fileAt(path, entries, posix.normalize(wanted)) };
}

function fileAt(
  path: string,
  entries: ReadonlyMap<string, Entry>,
  name: string,
): ReturnType<TarIndex['find']> {
  let found = entries.get(name);
  for (let links = 0; found !== undefined && 'linkTo' in found; links += 1) {
    if (links > MAX_LINKS) return undefined;
    found = entries.get(found.linkTo);
  }
  if (found === undefined) return undefined;
  const { at, size } = found;
  return {
    size,
    read: () => (size === 0 ? nothing() : createReadStream(path, { start: at, end: at + size - 1 })),
  };
}

async function* nothing(): AsyncGenerator<Buffer> {}

async function refuseCompressed(path: string): Promise<void> {
  for await (const head of createReadStream(path, { end: 3 }) as AsyncIterable<Buffer>) {
    if (!/^(1f8b|28b52ffd|fd377a58|425a68)/.test(head.toString('hex'))) return;
    throw new TorporError('invalid_request', 'The archive of the image is compressed.', {
      hint: 'Decompress it first, for example with gunzip. Its layers may stay compressed.',
    });
  }
}

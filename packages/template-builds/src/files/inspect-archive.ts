/**
 * Reads an uploaded archive to its end and lists its entries. Archives come from strangers: only files, directories and
 * links are accepted, at paths that stay below the top. The archive itself is not unpacked on this machine.
 */
import { posix } from 'node:path';
import { ByteReader, nextTarHeader, type TarHeader, tarContent } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';

const MAX_ENTRIES = 100_000;
const MAX_PATH_BYTES = 4_096;
/** The largest time of a header, in seconds. */
const MAX_TIME = 8 ** 11 - 1;

export const archiveEntrySchema = z.object({
  path: z.string(),
  type: z.enum(['file', 'directory', 'link']),
  mode: z.number(),
  mtime: z.number(),
  size: z.number(),
  /** Where the content begins in the archive without compression. */
  at: z.number(),
  target: z.string().optional(),
});
export type ArchiveEntry = Readonly<z.infer<typeof archiveEntrySchema>>;

class CountingReader extends ByteReader {
  /** How many bytes were taken. */
  at = 0;

  override async take(length: number): Promise<Buffer> {
    const taken = await super.take(length);
    this.at += taken.length;
    return taken;
  }
}

/** In the order of their paths. Throws `invalid_request` for anything that is not accepted. */
export async function inspectArchive(bytes: AsyncIterable<Buffer>): Promise<ArchiveEntry[]> {
  const entries = new Map<string, ArchiveEntry>();
  const archive = new CountingReader(bytes);
  try {
    for (;;) {
      const header = await nextTarHeader(archive);
      if (header === undefined) break;
      const entry = entryOf(header, archive.at, entries);
      if (entry.path !== '') entries.set(entry.path, entry);
      if (entries.size > MAX_ENTRIES) throw unusable(`it has more than ${MAX_ENTRIES} entries`);
      for await (const _ of tarContent(archive, isFile(header) ? header.size : 0));
    }
    // Blocks may follow the end mark.
    await archive.finish();
  } finally {
    await archive.close();
  }
  for (const { path } of entries.values()) refuseBelowOther(path, entries);
  return [...entries.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
}

function isFile({ type }: TarHeader): boolean {
  return type === '0' || type === '\0' || type === '7';
}

function entryOf(header: TarHeader, at: number, entries: ReadonlyMap<string, ArchiveEntry>): ArchiveEntry {
  const path = pathOf(header.path);
  const common = { path, mode: header.mode & 0o777, mtime: timeOf(header.mtime) };
  if ([...header.records.keys()].some((key) => key.startsWith('GNU.sparse.')))
    throw unusable(`"${path}" is a sparse file`);
  if (isFile(header)) return { ...common, type: 'file', size: header.size, at };
  switch (header.type) {
    case '5':
      return { ...common, type: 'directory', size: 0, at: 0 };
    case '2': {
      const target = textOf(header.linkTarget);
      if (target === '') throw unusable(`the link "${path}" has no target`);
      return { ...common, type: 'link', size: 0, at: 0, target };
    }
    case '1': {
      const linked = entries.get(pathOf(header.linkTarget));
      if (linked?.type !== 'file') throw unusable(`"${path}" is a hard link to a file that is not in it`);
      return { ...linked, path };
    }
    case '3':
    case '4':
      throw unusable(`"${path}" is a device`);
    case '6':
      throw unusable(`"${path}" is a named pipe`);
    default:
      throw unusable(`"${path}" has the unknown type "${header.type}"`);
  }
}

/** The time is not worth a refusal: one that is no time of a tar becomes the nearest one. */
function timeOf(text: string): number {
  const seconds = Math.floor(Number(text));
  return Number.isNaN(seconds) ? 0 : Math.min(Math.max(0, seconds), MAX_TIME);
}

/** Empty for the top of the archive. */
function pathOf(bytes: string): string {
  const text = textOf(bytes);
  if (text.startsWith('/')) throw unusable(`"${text}" is an absolute path`);
  if (text.split('/').includes('..')) throw unusable(`"${text}" is a path with ".."`);
  if (Buffer.byteLength(text) > MAX_PATH_BYTES) throw unusable('a path in it is too long');
  return posix.normalize(`/${text}`).slice(1).replace(/\/$/, '');
}

/** Names in archives are bytes; here they must be text. */
function textOf(bytes: string): string {
  const text = Buffer.from(bytes, 'latin1').toString('utf8');
  if (Buffer.from(text, 'utf8').toString('latin1') !== bytes) throw unusable('a name in it is not UTF-8');
  if (text.includes('\0')) throw unusable('a name in it has a zero byte');
  return text;
}

/** A path below a link would lead somewhere else when it is unpacked. */
function refuseBelowOther(path: string, entries: ReadonlyMap<string, ArchiveEntry>): void {
  for (let parent = posix.dirname(path); parent !== '.'; parent = posix.dirname(parent)) {
    const above = entries.get(parent);
    if (above !== undefined && above.type !== 'directory')
      throw unusable(`"${path}" lies below "${parent}", which is not a directory`);
  }
}

export function unusable(why: string): TorporError {
  return new TorporError('invalid_request', `The uploaded archive cannot be used: ${why.slice(0, 500)}.`);
}

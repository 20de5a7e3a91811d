/**
 * The entries of a tar archive from an untrusted source. However large the archive claims to be, only a bounded piece of it is in
 * memory. Names are bytes, held as text with one character per byte.
 */

import { type ByteReader, nextTarHeader, tarContent } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

type EntryKind = 'file' | 'directory' | 'link' | 'hardLink' | 'device' | 'fifo';

export interface ArchiveEntry {
  readonly path: string;
  readonly kind: EntryKind;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Seconds. */
  readonly mtime: number;
  readonly size: number;
  /** The target of a link, unchanged. */
  readonly target: string;
  /** The caller may read it only before it asks for the next entry. */
  readonly content: AsyncIterable<Buffer>;
}

const KINDS: Readonly<Record<string, EntryKind>> = {
  '0': 'file',
  '\0': 'file',
  '7': 'file',
  '1': 'hardLink',
  '2': 'link',
  '3': 'device',
  '4': 'device',
  '5': 'directory',
  '6': 'fifo',
};

/** Yields the entries up to the end mark. Bytes after the end mark are not read. */
export async function* archiveEntries(archive: ByteReader): AsyncGenerator<ArchiveEntry> {
  for (;;) {
    const header = await nextTarHeader(archive);
    if (header === undefined) return;
    const { path, type, mode, uid, gid, size, linkTarget: target, records } = header;
    const kind = KINDS[type];
    if (kind === undefined) throw unusable(`it has an entry of the unknown type ${JSON.stringify(type)}`);
    // GNU's sparse files store a list of their parts in place of their plain content.
    if ([...records.keys()].some((key) => key.startsWith('GNU.sparse.')))
      throw unusable('it has sparse files');
    const content = tarContent(archive, kind === 'file' ? size : 0);
    yield { path, kind, mode, uid, gid, mtime: Number(header.mtime), size, target, content };
    // Skips the content that the caller has not read.
    for await (const _ of content);
  }
}

function unusable(why: string): TorporError {
  return new TorporError('invalid_request', `The archive of the root cannot be used: ${why}.`);
}

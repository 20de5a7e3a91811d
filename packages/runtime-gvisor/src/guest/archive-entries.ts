/**
 * The entries of a tar archive that strangers made, one after the other: ustar, pax and GNU's long names.
 * Nothing an archive says makes us keep more than a bounded piece of it in memory. Names are bytes, held as
 * text of one character for each.
 */

import type { ByteReader } from '@torpor/layers';
import { TorporError } from '@torpor/protocol';

const BLOCK = 512;
/** Names and attributes before an entry; a path has 4,096 bytes at most. */
const MAX_RECORDS = 1024 * 1024;
const PIECE = 1024 * 1024;

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
  /** Where a link leads, as it stands there. */
  readonly target: string;
  /** To be read, if at all, before the next entry is asked for. */
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

type Records = Map<string, string>;

/** Up to the mark of the end. What comes after that is not read. */
export async function* archiveEntries(archive: ByteReader): AsyncGenerator<ArchiveEntry> {
  let records: Records = new Map();
  for (;;) {
    const block = await archive.take(BLOCK);
    if (block.length < BLOCK) throw broken('it ends in the middle');
    if (block.every((byte) => byte === 0)) return;
    checkSum(block);
    const type = block.toString('latin1', 156, 157);
    if (await takeRecords(archive, type, block, records)) continue;
    const kind = KINDS[type];
    if (kind === undefined) throw broken(`it has an entry of the unknown type ${JSON.stringify(type)}`);
    const entry = entryOf(block, kind, records);
    records = new Map();
    const length = kind === 'file' ? entry.size : 0;
    const content = contentOf(archive, length);
    yield { ...entry, content };
    // Whatever was not read of it, and the room after it.
    for await (const _ of content);
    await take(archive, padding(length));
  }
}

/** Whether the block was one that only says something about the next entry. */
async function takeRecords(
  archive: ByteReader,
  type: string,
  block: Buffer,
  records: Records,
): Promise<boolean> {
  if (!'xgLK'.includes(type)) return false;
  const size = number(block, 124, 12);
  if (size > MAX_RECORDS) throw broken('a name in it is too long');
  const body = (await take(archive, size + padding(size))).subarray(0, size);
  if (type === 'L') records.set('path', text(body, 0, size));
  if (type === 'K') records.set('linkpath', text(body, 0, size));
  if (type === 'x') for (const [key, value] of parseRecords(body)) records.set(key, value);
  return true;
}

/** Each is `length key=value`, and the length counts all of it and the line's end. */
function* parseRecords(body: Buffer): Generator<[string, string]> {
  for (let at = 0; at < body.length; ) {
    const space = body.indexOf(0x20, at);
    const length = Number(body.toString('latin1', at, space));
    if (space === -1 || !(length > space - at) || at + length > body.length)
      throw broken('its records are no good');
    const line = body.toString('latin1', space + 1, at + length - 1);
    const equals = line.indexOf('=');
    if (equals > 0) yield [line.slice(0, equals), line.slice(equals + 1)];
    at += length;
  }
}

function entryOf(block: Buffer, kind: EntryKind, records: Records): Omit<ArchiveEntry, 'content'> {
  // GNU's own sparse files stand for more than they hold, in a form of their own.
  if ([...records.keys()].some((key) => key.startsWith('GNU.sparse.'))) throw broken('it has sparse files');
  const isPosix = block.toString('latin1', 257, 263) === 'ustar\0';
  const prefix = isPosix ? text(block, 345, 155) : '';
  const name = text(block, 0, 100);
  const numeric = (key: string, at: number, length: number) =>
    Number(records.get(key) ?? number(block, at, length));
  const entry = {
    path: records.get('path') ?? (prefix === '' ? name : `${prefix}/${name}`),
    kind,
    mode: number(block, 100, 8),
    uid: numeric('uid', 108, 8),
    gid: numeric('gid', 116, 8),
    mtime: numeric('mtime', 136, 12),
    size: numeric('size', 124, 12),
    target: records.get('linkpath') ?? text(block, 157, 100),
  };
  const isId = (id: number) => Number.isInteger(id) && id >= 0 && id < 2 ** 32 - 1;
  if (!isId(entry.uid) || !isId(entry.gid)) throw broken('an owner in it is no number of a user');
  if (!Number.isSafeInteger(entry.size) || entry.size < 0) throw broken('a size in it is no size');
  return entry;
}

/** Each reading goes on where the one before it stopped. */
function contentOf(archive: ByteReader, length: number): AsyncIterable<Buffer> {
  let left = length;
  async function* read(): AsyncGenerator<Buffer> {
    while (left > 0) {
      const piece = await take(archive, Math.min(left, PIECE));
      left -= piece.length;
      yield piece;
    }
  }
  return { [Symbol.asyncIterator]: read };
}

async function take(archive: ByteReader, length: number): Promise<Buffer> {
  const bytes = await archive.take(length);
  if (bytes.length < length) throw broken('it ends in the middle');
  return bytes;
}

function padding(size: number): number {
  return (BLOCK - (size % BLOCK)) % BLOCK;
}

function checkSum(block: Buffer): void {
  const said = number(block, 148, 8);
  const sum = block.reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 0x20 : byte), 0);
  if (said !== sum) throw broken('it is no tar archive, or damaged');
}

function text(bytes: Buffer, at: number, length: number): string {
  return bytes.toString('latin1', at, at + length).replace(/\0.*$/s, '');
}

/** Octal digits; or, for what is too large for them, a first bit that is set and then the number itself. */
function number(block: Buffer, at: number, length: number): number {
  if (((block[at] ?? 0) & 0x80) !== 0) {
    const high = (block[at] ?? 0) & 0x7f;
    return block.subarray(at + 1, at + length).reduce((value, byte) => value * 256 + byte, high);
  }
  const digits = text(block, at, length).trim();
  return /^[0-7]*$/.test(digits) ? Number.parseInt(digits || '0', 8) : Number.NaN;
}

function broken(why: string): TorporError {
  return new TorporError('invalid_request', `The archive of the root cannot be used: ${why}.`);
}

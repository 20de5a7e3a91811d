/**
 * Reads the entries of an untrusted tar archive one by one: ustar, pax and GNU's long names. Whatever the archive says,
 * only a bounded piece of it is kept in memory. Names are bytes, held as strings with one character per byte (latin1).
 */

import type { ByteReader } from '@torpor/layers';
import { TorporError } from '@torpor/protocol';

const BLOCK = 512;
/** The largest size of the extended header of an entry. A path has at most 4,096 bytes. */
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
  /** The target of a link, unresolved. */
  readonly target: string;
  /** Must be read, if at all, before the next entry is requested. */
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

/** Stops at the end-of-archive block and reads nothing after it. */
export async function* archiveEntries(archive: ByteReader): AsyncGenerator<ArchiveEntry> {
  let records: Records = new Map();
  for (;;) {
    const block = await archive.take(BLOCK);
    if (block.length < BLOCK) throw broken('it is truncated');
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
    // Skip the content that was not read, and the padding.
    for await (const _ of content);
    await take(archive, padding(length));
  }
}

/** Whether the block was an extended header, which describes the next entry. */
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

/** Each record is `length key=value\n`, and the length counts the whole record. */
function* parseRecords(body: Buffer): Generator<[string, string]> {
  for (let at = 0; at < body.length; ) {
    const space = body.indexOf(0x20, at);
    const length = Number(body.toString('latin1', at, space));
    if (space === -1 || !(length > space - at) || at + length > body.length)
      throw broken('its extended headers are invalid');
    const line = body.toString('latin1', space + 1, at + length - 1);
    const equals = line.indexOf('=');
    if (equals > 0) yield [line.slice(0, equals), line.slice(equals + 1)];
    at += length;
  }
}

function entryOf(block: Buffer, kind: EntryKind, records: Records): Omit<ArchiveEntry, 'content'> {
  // GNU's sparse files have a format of their own, and unpack to more than their size.
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
  if (!isId(entry.uid) || !isId(entry.gid)) throw broken('it has an invalid owner');
  if (!Number.isSafeInteger(entry.size) || entry.size < 0) throw broken('it has an invalid size');
  return entry;
}

/** Each iteration continues where the previous one stopped. */
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
  if (bytes.length < length) throw broken('it is truncated');
  return bytes;
}

function padding(size: number): number {
  return (BLOCK - (size % BLOCK)) % BLOCK;
}

function checkSum(block: Buffer): void {
  const expected = number(block, 148, 8);
  const sum = block.reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 0x20 : byte), 0);
  if (expected !== sum) throw broken('it is not a tar archive, or it is damaged');
}

function text(bytes: Buffer, at: number, length: number): string {
  return bytes.toString('latin1', at, at + length).replace(/\0.*$/s, '');
}

/** Octal digits; or, for larger numbers, the number in binary after a first bit that is set. */
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

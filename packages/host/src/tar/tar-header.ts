/**
 * Reads the entries of a tar archive: ustar, pax records and GNU long names.
 *
 * The `tar-stream` package decodes names and pax records as UTF-8, rounds times to seconds, ignores malformed records and
 * buffers records of any size. Names and extended attributes of a sandbox are arbitrary bytes, and archives may come from
 * strangers, so this reader keeps bytes, is strict and has bounds.
 */
import { TorporError } from '@torpor/protocol';
import type { ByteReader } from './byte-reader.ts';

const BLOCK = 512;
/** Longest names and records before one entry. A path has at most 4,096 bytes. */
const MAX_RECORDS = 1024 * 1024;
const MAX_PIECE = 1024 * 1024;

/** Names and record values have one character per byte (latin1). */
export interface TarHeader {
  readonly path: string;
  /** The type flag, such as `0` (file), `5` (directory) or `2` (symbolic link). */
  readonly type: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Seconds in decimal notation, with as many fractional digits as the archive has. */
  readonly mtime: string;
  /** Bytes of content that follow the header. `readTarContent` reads them. */
  readonly size: number;
  /** Target of a symbolic or hard link. */
  readonly linkTarget: string;
  readonly device: { readonly major: number; readonly minor: number };
  /** The pax records before the header, such as `SCHILY.xattr.…` and `GNU.sparse.…`. */
  readonly records: ReadonlyMap<string, string>;
}

/**
 * Reads the next header, or undefined at the end mark. The content of the entry follows in the archive. Throws
 * `invalid_request` for anything that is not a complete, undamaged header.
 */
export async function nextTarHeader(archive: ByteReader): Promise<TarHeader | undefined> {
  const records = new Map<string, string>();
  for (;;) {
    const block = await takeAll(archive, BLOCK);
    if (block.every((byte) => byte === 0)) return undefined;
    verifyChecksum(block);
    const type = block.toString('latin1', 156, 157);
    if (!'xgLK'.includes(type)) return headerOf(block, type, records);
    await takeRecords(archive, type, numberAt(block, 124, 12), records);
  }
}

/** The content of an entry in bounded pieces. Iterating again continues after the last piece that was read. */
export function tarContent(archive: ByteReader, size: number): AsyncIterable<Buffer> {
  let left = size;
  async function* read(): AsyncGenerator<Buffer> {
    while (left > 0) {
      const piece = await takeAll(archive, Math.min(left, MAX_PIECE));
      left -= piece.length;
      if (left === 0) await takeAll(archive, paddingAfter(size));
      yield piece;
    }
  }
  return { [Symbol.asyncIterator]: read };
}

/** Type `g` (global records) is read and ignored. */
async function takeRecords(
  archive: ByteReader,
  type: string,
  size: number,
  records: Map<string, string>,
): Promise<void> {
  if (!(size <= MAX_RECORDS)) throw unusable('a name in it is too long');
  const body = (await takeAll(archive, size + paddingAfter(size))).subarray(0, size);
  if (type === 'L') records.set('path', textAt(body, 0, size));
  if (type === 'K') records.set('linkpath', textAt(body, 0, size));
  if (type === 'x') for (const [key, value] of parseRecords(body)) records.set(key, value);
}

/** A record is `length key=value\n`, where the length counts the whole record. */
function* parseRecords(body: Buffer): Generator<[string, string]> {
  for (let at = 0; at < body.length; ) {
    const space = body.indexOf(0x20, at);
    const length = Number(body.toString('latin1', at, space));
    if (space === -1 || !(length > space - at) || at + length > body.length)
      throw unusable('it has malformed records');
    const line = body.toString('latin1', space + 1, at + length - 1);
    const equals = line.indexOf('=');
    if (equals > 0) yield [line.slice(0, equals), line.slice(equals + 1)];
    at += length;
  }
}

function headerOf(block: Buffer, type: string, records: ReadonlyMap<string, string>): TarHeader {
  // GNU's own format uses the bytes of the prefix for other fields.
  const isPosix = block.toString('latin1', 257, 263) === 'ustar\0';
  const prefix = isPosix ? textAt(block, 345, 155) : '';
  const name = textAt(block, 0, 100);
  const numeric = (key: string, at: number, length: number) =>
    Number(records.get(key) ?? numberAt(block, at, length));
  const header = {
    path: records.get('path') ?? (prefix === '' ? name : `${prefix}/${name}`),
    type,
    mode: numberAt(block, 100, 8),
    uid: numeric('uid', 108, 8),
    gid: numeric('gid', 116, 8),
    mtime: records.get('mtime') ?? `${numberAt(block, 136, 12)}`,
    size: numeric('size', 124, 12),
    linkTarget: records.get('linkpath') ?? textAt(block, 157, 100),
    device: { major: numberAt(block, 329, 8), minor: numberAt(block, 337, 8) },
    records,
  };
  if (!isUserId(header.uid) || !isUserId(header.gid)) throw unusable('an owner in it is not a user id');
  if (!Number.isSafeInteger(header.size) || header.size < 0) throw unusable('a size in it is not a size');
  return header;
}

function isUserId(id: number): boolean {
  return Number.isInteger(id) && id >= 0 && id < 2 ** 32 - 1;
}

async function takeAll(archive: ByteReader, length: number): Promise<Buffer> {
  const bytes = await archive.take(length);
  if (bytes.length < length) throw unusable('it ends in the middle');
  return bytes;
}

function paddingAfter(size: number): number {
  return (BLOCK - (size % BLOCK)) % BLOCK;
}

function verifyChecksum(block: Buffer): void {
  const recorded = numberAt(block, 148, 8);
  const sum = block.reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 0x20 : byte), 0);
  if (recorded !== sum) throw unusable('it is not a tar archive, or it is damaged');
}

function textAt(bytes: Buffer, at: number, length: number): string {
  return bytes.toString('latin1', at, at + length).replace(/\0.*$/s, '');
}

/** Octal digits. A number that is too large for them is binary, with the first bit set as a mark. */
function numberAt(block: Buffer, at: number, length: number): number {
  const first = block[at] ?? 0;
  if ((first & 0x80) !== 0)
    return block.subarray(at + 1, at + length).reduce((value, byte) => value * 256 + byte, first & 0x7f);
  const digits = textAt(block, at, length).trim();
  return /^[0-7]*$/.test(digits) ? Number.parseInt(digits || '0', 8) : Number.NaN;
}

function unusable(why: string): TorporError {
  return new TorporError('invalid_request', `The archive cannot be used: ${why}.`);
}

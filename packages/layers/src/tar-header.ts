/**
 * Reads and writes the headers of tar entries. With `tar`, which every Debian has, this is a way to read and set extended
 * attributes without further programs. Only the pax format is supported: long names, exact times and arbitrary bytes are in
 * records before the header.
 */
import type { ByteReader } from '@torpor/host';
import type { TreePath } from './tree-listing.ts';

const BLOCK = 512;
const XATTR = 'SCHILY.xattr.';

export interface TarHeader {
  /** One character per byte. */
  readonly path: TreePath;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Seconds, with as many decimals as the archive has. */
  readonly mtime: string;
  readonly size: number;
  readonly device: { readonly major: number; readonly minor: number };
  /** The records before the header, values one character per byte. */
  readonly records: ReadonlyMap<string, string>;
}

/** The header of the next entry, or undefined at the end of the archive. The entry's content comes next in the archive. */
export async function nextHeader(archive: ByteReader): Promise<TarHeader | undefined> {
  let records: ReadonlyMap<string, string> = new Map();
  for (;;) {
    const block = await archive.take(BLOCK);
    if (block.length < BLOCK || block[0] === 0) return undefined;
    if (block.toString('latin1', 156, 157) !== 'x') return headerOf(block, records);
    const size = number(block, 124, 12);
    records = parseRecords((await archive.take(padded(size))).subarray(0, size));
  }
}

/** How many bytes the content of an entry takes up in an archive. */
function padded(size: number): number {
  return Math.ceil(size / BLOCK) * BLOCK;
}

export function xattrOf(header: TarHeader, name: string): string | undefined {
  return header.records.get(XATTR + name);
}

/** The same header with another path and other values of these attributes; null removes an attribute. */
export function renamed(
  header: TarHeader,
  path: TreePath,
  xattrs: Readonly<Record<string, string | null>>,
): TarHeader {
  const records = new Map(header.records);
  for (const [name, value] of Object.entries(xattrs)) {
    if (value === null) records.delete(XATTR + name);
    else records.set(XATTR + name, value);
  }
  return { ...header, path, records };
}

/** The bytes of a directory's entry in an archive. */
export function directoryEntry({ path, mode, uid, gid, mtime, records }: TarHeader): Buffer {
  const all = new Map([...records, ['path', path], ['uid', `${uid}`], ['gid', `${gid}`], ['mtime', mtime]]);
  const body = Buffer.from([...all].map(record).join(''), 'latin1');
  return Buffer.concat([
    headerBlock('records', 'x', 0o644, body.length),
    body,
    Buffer.alloc(padded(body.length) - body.length),
    headerBlock('directory', '5', mode, 0),
  ]);
}

export const ARCHIVE_END = Buffer.alloc(2 * BLOCK);

function headerOf(block: Buffer, records: ReadonlyMap<string, string>): TarHeader {
  const prefix = text(block, 345, 155);
  const name = text(block, 0, 100);
  const numeric = (key: string, at: number) => Number(records.get(key) ?? number(block, at, 8));
  return {
    path: records.get('path') ?? (prefix === '' ? name : `${prefix}/${name}`),
    mode: number(block, 100, 8),
    uid: numeric('uid', 108),
    gid: numeric('gid', 116),
    mtime: records.get('mtime') ?? `${number(block, 136, 12)}`,
    size: Number(records.get('size') ?? number(block, 124, 12)),
    device: { major: number(block, 329, 8), minor: number(block, 337, 8) },
    records,
  };
}

/** A record is `length key=value` and a line break; the length counts all of that. */
function parseRecords(body: Buffer): ReadonlyMap<string, string> {
  const records = new Map<string, string>();
  for (let at = 0; at < body.length; ) {
    const space = body.indexOf(0x20, at);
    const length = Number(body.toString('latin1', at, space));
    if (!(length > 0)) throw new Error('The records of an archive are not what tar writes.');
    const line = body.toString('latin1', space + 1, at + length - 1);
    const equals = line.indexOf('=');
    records.set(line.slice(0, equals), line.slice(equals + 1));
    at += length;
  }
  return records;
}

function record([key, value]: readonly [string, string]): string {
  const rest = ` ${key}=${value}\n`;
  let length = rest.length + 1;
  while (`${length}`.length + rest.length !== length) length++;
  return `${length}${rest}`;
}

function headerBlock(name: string, type: string, mode: number, size: number): Buffer {
  const block = Buffer.alloc(BLOCK);
  block.write(name, 0, 'latin1');
  block.write(`${octal(mode & 0o7777, 7)}\0${octal(0, 7)}\0${octal(0, 7)}\0`, 100, 'latin1');
  block.write(`${octal(size, 11)}\0${octal(0, 11)}\0`, 124, 'latin1');
  block.write(`        ${type}`, 148, 'latin1');
  block.write('ustar\x0000', 257, 'latin1');
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${octal(sum, 6)}\0 `, 148, 'latin1');
  return block;
}

function octal(value: number, digits: number): string {
  return value.toString(8).padStart(digits, '0');
}

function text(block: Buffer, at: number, length: number): string {
  return block.toString('latin1', at, at + length).replace(/\0.*$/s, '');
}

/** Octal digits. A number that is too large for them is binary, after a first bit that is set. */
function number(block: Buffer, at: number, length: number): number {
  if (((block[at] ?? 0) & 0x80) === 0) return Number.parseInt(text(block, at, length).trim() || '0', 8);
  return block.subarray(at + 1, at + length).reduce((value, byte) => value * 256 + byte, 0);
}

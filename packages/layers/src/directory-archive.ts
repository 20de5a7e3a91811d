/**
 * Writes directories with their extended attributes into an archive for `tar`, which every Debian has: a way to set attributes
 * without further programs. The format is pax: long names, exact times and arbitrary bytes are in records before the header.
 */
import type { TarHeader } from '@torpor/host';
import type { TreePath } from './tree-listing.ts';

const BLOCK = 512;
const XATTR = 'SCHILY.xattr.';

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
    Buffer.alloc(Math.ceil(body.length / BLOCK) * BLOCK - body.length),
    headerBlock('directory', '5', mode, 0),
  ]);
}

export const ARCHIVE_END = Buffer.alloc(2 * BLOCK);

/** A record is `length key=value` and a line break; the length counts all of that. */
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

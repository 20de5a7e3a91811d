/** Writes tar archives for tests, valid and hostile ones. */
export interface TarEntry {
  readonly name: string;
  /** The type flag of the header: `0` file, `1` hard link, `2` link, `3` and `4` device, `5` directory, `6` fifo. */
  readonly type?: string;
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly mtime?: number;
  readonly target?: string;
  readonly content?: string | Buffer;
  /** Written into the header instead of the real size. */
  readonly size?: number;
  readonly records?: Readonly<Record<string, string>>;
}

const BLOCK = 512;

export function tar(...entries: readonly TarEntry[]): Buffer {
  return Buffer.concat([...entries.map(entryBytes), Buffer.alloc(2 * BLOCK)]);
}

function entryBytes(entry: TarEntry): Buffer {
  const content = Buffer.from(entry.content ?? '');
  const own = Buffer.concat([header(entry, content.length), padded(content)]);
  if (entry.records === undefined) return own;
  const records = Buffer.from(Object.entries(entry.records).map(record).join(''), 'latin1');
  return Buffer.concat([entryBytes({ name: 'records', type: 'x', content: records }), own]);
}

function header(entry: TarEntry, length: number): Buffer {
  const block = Buffer.alloc(BLOCK);
  block.write(entry.name, 0, 100, 'latin1');
  block.write(octal(entry.mode ?? 0o644, 8), 100);
  block.write(octal(entry.uid ?? 0, 8), 108);
  block.write(octal(entry.gid ?? 0, 8), 116);
  block.write(octal(entry.size ?? length, 12), 124);
  block.write(octal(entry.mtime ?? 1_000_000_000, 12), 136);
  block.write(entry.type ?? '0', 156);
  block.write(entry.target ?? '', 157, 100, 'latin1');
  block.write('ustar\x0000', 257);
  block.fill(' ', 148, 156);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${octal(sum, 7)}\0 `, 148);
  return block;
}

function octal(value: number, width: number): string {
  return value.toString(8).padStart(width - 1, '0');
}

function padded(content: Buffer): Buffer {
  return Buffer.concat([content, Buffer.alloc((BLOCK - (content.length % BLOCK)) % BLOCK)]);
}

function record([key, value]: [string, string]): string {
  const rest = ` ${key}=${value}\n`;
  let length = rest.length + 1;
  while (`${length}`.length + rest.length !== length) length += 1;
  return `${length}${rest}`;
}

/** Writes a tar archive as a stream, with long names as records of pax. */

export interface TarItem {
  readonly path: string;
  readonly type: 'file' | 'directory' | 'link';
  readonly mode: number;
  /** Seconds. */
  readonly mtime: number;
  readonly size: number;
  readonly target?: string;
  content?(): AsyncIterable<Uint8Array>;
}

const BLOCK = 512;
const TYPES = { file: '0', directory: '5', link: '2' } as const;

/** Everything belongs to root, as in an image that Docker builds. */
export async function* tarStream(items: Iterable<TarItem>): AsyncGenerator<Uint8Array> {
  for (const item of items) {
    const records = recordsOf(item);
    if (records.length > 0) {
      yield header({ ...item, path: 'records', target: '', size: records.length }, 'x');
      yield padded(records);
    }
    yield header(item, TYPES[item.type]);
    let left = item.size;
    for await (const chunk of item.content?.() ?? []) {
      left -= chunk.length;
      if (left < 0) break;
      yield chunk;
    }
    if (left !== 0) throw new Error(`${item.path} changed while it was read.`);
    yield new Uint8Array((BLOCK - (item.size % BLOCK)) % BLOCK);
  }
  yield new Uint8Array(2 * BLOCK);
}

function recordsOf({ path, target = '', size }: TarItem): Buffer {
  const lines: Buffer[] = [];
  if (!fits(path)) lines.push(record('path', path));
  if (!fits(target)) lines.push(record('linkpath', target));
  if (size >= 8 ** 11) lines.push(record('size', String(size)));
  return Buffer.concat(lines);
}

function fits(text: string): boolean {
  return Buffer.byteLength(text) <= 100;
}

function record(key: string, value: string): Buffer {
  const rest = Buffer.byteLength(` ${key}=${value}\n`);
  let length = rest + 1;
  while (String(length).length + rest !== length) length += 1;
  return Buffer.from(`${length} ${key}=${value}\n`);
}

function header({ path, mode, mtime, size, target = '' }: TarItem, type: string): Buffer {
  const block = Buffer.alloc(BLOCK);
  block.write(path, 0, 100);
  block.write(octal(mode, 8), 100);
  block.write(octal(0, 8), 108);
  block.write(octal(0, 8), 116);
  block.write(octal(Math.min(size, 8 ** 11 - 1), 12), 124);
  block.write(octal(Math.max(0, Math.floor(mtime)), 12), 136);
  block.write(type, 156);
  block.write(target, 157, 100);
  block.write('ustar\x0000', 257);
  block.fill(' ', 148, 156);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${octal(sum, 7)}\0 `, 148);
  return block;
}

function octal(value: number, width: number): string {
  return value.toString(8).padStart(width - 1, '0');
}

function padded(bytes: Buffer): Buffer {
  return Buffer.concat([bytes], Math.ceil(bytes.length / BLOCK) * BLOCK);
}

/**
 * Lists every entry of a layer with `find`. Node could list them too, but only by paths, which a sandbox can make longer than
 * the kernel accepts in one call. `find` also keeps the work out of this process.
 */
import { streamProgram } from '@torpor/host';

/** Relative to the top, one character per byte ("latin1"), because names are bytes; empty for the top itself. */
export type TreePath = string;

/** A path as people read it. */
export function shownPath(path: TreePath): string {
  return Buffer.from(path, 'latin1').toString();
}

const TYPES = {
  f: 'file',
  d: 'directory',
  l: 'symlink',
  c: 'character',
  b: 'block',
  p: 'fifo',
  s: 'socket',
} as const;

export interface TreeEntry {
  readonly path: TreePath;
  readonly type: (typeof TYPES)[keyof typeof TYPES];
  readonly inode: string;
  /** Permission bits, octal. */
  readonly mode: string;
  readonly uid: number;
  readonly gid: number;
  readonly size: bigint;
  /** Of 512 bytes. */
  readonly blocks: bigint;
  /** Seconds since 1970, with nine decimals. */
  readonly mtime: string;
  /** Where a symlink points, one character per byte. */
  readonly target: string;
}

const FORMAT = '%y %i %m %U %G %s %b %T@ %P\\0%l\\0';
const FIELDS = 8;

/** Lists a directory that does not change meanwhile. A directory comes before its entries. */
export async function* listTree(top: string, signal?: AbortSignal): AsyncGenerator<TreeEntry> {
  const texts = split(streamProgram('find', [top, '-xdev', '-printf', FORMAT], { signal }));
  try {
    for (;;) {
      const [fields, target] = [await texts.next(), await texts.next()];
      if (fields.done === true || target.done === true) return;
      yield entryOf(fields.value, target.value);
    }
  } finally {
    await texts.return(undefined);
  }
}

/** The texts between NUL characters. */
async function* split(printed: AsyncIterable<Buffer>): AsyncGenerator<string, undefined> {
  let rest = '';
  for await (const chunk of printed) {
    const texts = (rest + chunk.toString('latin1')).split('\0');
    rest = texts.pop() ?? '';
    yield* texts;
  }
  return undefined;
}

function entryOf(text: string, target: string): TreeEntry {
  const fields = text.split(' ', FIELDS);
  const [letter, inode, mode, uid, gid, size, blocks, mtime = ''] = fields;
  return {
    path: text.slice(fields.join(' ').length + 1),
    type: TYPES[letter as keyof typeof TYPES],
    inode: inode ?? '',
    mode: mode ?? '',
    uid: Number(uid),
    gid: Number(gid),
    size: BigInt(size ?? 0),
    blocks: BigInt(blocks ?? 0),
    // `find` prints a tenth decimal, which is always 0.
    mtime: mtime.slice(0, mtime.indexOf('.') + 10),
    target,
  };
}

/**
 * Reaches entries whose paths are longer than the kernel accepts in one call. A sandbox can make such a path step by step,
 * and a layer that holds one must still be merged and verified.
 *
 * Directories on the way are held open. A path then starts at the descriptor of such a directory, and is short again.
 */
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { TorporError } from '@torpor/protocol';
import type { TreePath } from './tree-listing.ts';

/** The kernel accepts 4096 bytes with the terminating zero, and the path of the layer comes first. */
const LONGEST = 3000;
/** Each open directory takes one of the server's file descriptors. */
const MAX_HELD = 256;

/** A path in two parts, each short enough for a system call. */
export interface ShortPath {
  /** A path of the directory that other programs can use too, for as long as this process holds the directory open. */
  readonly from: string;
  /** The rest of the path from there, one character per byte. */
  readonly rest: TreePath;
}

export class DeepPaths {
  readonly #top: string;
  readonly #opened = new Map<TreePath, Promise<FileHandle>>();

  constructor(top: string) {
    this.#top = top;
  }

  /** A path of the entry that a system call accepts. */
  async to(path: TreePath): Promise<Buffer> {
    const { from, rest } = await this.shorten(path);
    return Buffer.concat([Buffer.from(`${from}/`), Buffer.from(rest, 'latin1')]);
  }

  async shorten(path: TreePath): Promise<ShortPath> {
    let from = this.#top;
    let rest = path;
    while (rest.length > LONGEST) {
      const cut = rest.lastIndexOf('/', LONGEST);
      const passed = path.slice(0, path.length - rest.length + cut);
      const { fd } = await this.#hold(passed, from, rest.slice(0, cut));
      from = `/proc/${process.pid}/fd/${fd}`;
      rest = rest.slice(cut + 1);
    }
    return { from, rest };
  }

  async close(): Promise<void> {
    for (const handle of this.#opened.values()) await handle.then((held) => held.close()).catch(() => {});
    this.#opened.clear();
  }

  #hold(passed: TreePath, from: string, step: TreePath): Promise<FileHandle> {
    let handle = this.#opened.get(passed);
    if (handle !== undefined) return handle;
    if (this.#opened.size >= MAX_HELD) {
      throw new TorporError('conflict', 'There are too many paths that are longer than the kernel accepts.');
    }
    const place = Buffer.concat([Buffer.from(`${from}/`), Buffer.from(step, 'latin1')]);
    handle = open(place, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
    this.#opened.set(passed, handle);
    return handle;
  }
}

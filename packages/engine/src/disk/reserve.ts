/**
 * Room on the disk that is kept for killing, deleting and starting: a file whose blocks are allocated.
 *
 * When a write finds no room, or little is left, the file is cut by one step, and what it occupied is free for the
 * write. It is cut in steps, so that a program which fills the disk takes one step at a time and not everything at
 * once. It grows again when there is room.
 *
 * One process uses a data directory, so nobody else changes the file. A crash leaves it at any length, and the next
 * start goes on from there.
 */
import { execFile } from 'node:child_process';
import { open, stat, statfs, truncate } from 'node:fs/promises';
import { dirname } from 'node:path';
import { promisify } from 'node:util';

/** Enough for a start with its migrations, or for hundreds of kills. */
const STEP_BYTES = 4 * 1024 ** 2;
/** On a small disk the reserve takes no more than this part of it. */
const LARGEST_SHARE = 1 / 4;

export interface ReserveState {
  /** What the file holds now. */
  readonly heldBytes: number;
  /** What it holds when there is room. */
  readonly wantedBytes: number;
}

export class DiskReserve {
  readonly #path: string;
  readonly #bytes: number;
  #held: number;
  #turn: Promise<unknown> = Promise.resolve();

  private constructor(path: string, bytes: number, held: number) {
    this.#path = path;
    this.#bytes = bytes;
    this.#held = held;
  }

  /** Looks at the file and changes nothing. `bytes` 0: no reserve is kept. */
  static async open(path: string, bytes: number): Promise<DiskReserve> {
    const found = await stat(path).catch(() => undefined);
    return new DiskReserve(path, bytes, found?.size ?? 0);
  }

  /** Frees one step. False when there is nothing left to give. */
  giveUp(): Promise<boolean> {
    return this.#inTurn(async () => {
      if (this.#held === 0) return false;
      await this.#cutTo(Math.max(0, this.#held - STEP_BYTES));
      return true;
    });
  }

  /** Gives up a step when there is hardly any room, and takes back what was given up when there is enough. */
  tend(): Promise<ReserveState> {
    return this.#inTurn(async () => {
      const { bavail, blocks, bsize } = await statfs(dirname(this.#path));
      let free = bavail * bsize;
      const wantedBytes = Math.min(this.#bytes, Math.floor(blocks * bsize * LARGEST_SHARE));
      const step = Math.min(STEP_BYTES, wantedBytes);
      if (this.#held > wantedBytes) await this.#cutTo(wantedBytes);
      else if (free < step && this.#held > 0) await this.#cutTo(Math.max(0, this.#held - STEP_BYTES));
      // It must leave more than it would give up again.
      while (this.#held < wantedBytes && free >= 3 * step) {
        const grown = Math.min(wantedBytes, this.#held + step);
        if (!(await this.#growTo(grown))) break;
        free -= step;
      }
      return { heldBytes: this.#held, wantedBytes };
    });
  }

  async #cutTo(bytes: number): Promise<void> {
    await truncate(this.#path, bytes);
    this.#held = bytes;
  }

  /** False, and the file as it was, when there is no room after all. */
  async #growTo(bytes: number): Promise<boolean> {
    const before = this.#held;
    try {
      await allocate(this.#path, before, bytes - before);
      this.#held = bytes;
      return true;
    } catch {
      await this.#cutTo(before).catch(() => undefined);
      return false;
    }
  }

  /** The file is changed by one at a time: a transaction and the round may both want to. */
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#turn.then(work);
    this.#turn = mine.catch(() => undefined);
    return mine;
  }
}

const run = promisify(execFile);

/** Makes the blocks real: a file that was only made longer would occupy nothing. */
async function allocate(path: string, offset: number, bytes: number): Promise<void> {
  const file = await open(path, 'a', 0o600);
  try {
    // Node cannot call fallocate(2). Where the program or the file system does not offer it, the bytes are written.
    await run('fallocate', ['--offset', String(offset), '--length', String(bytes), path]).catch(async () => {
      await file.writeFile(Buffer.alloc(bytes));
      await file.datasync();
    });
  } finally {
    await file.close();
  }
}

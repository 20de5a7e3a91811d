/**
 * Room on the disk that is kept for killing, deleting and starting: a file whose blocks are allocated.
 *
 * When a write of the database finds no room, the file is cut by one step and the write is tried again. It is cut only
 * for such a write, so that a program which fills the disk does not get the reserve too. It grows again when there
 * is room.
 *
 * One process uses a data directory, so nobody else changes the file. A crash leaves it at any length, and the next
 * start goes on from there.
 */
import { execFile } from 'node:child_process';
import { open, stat, statfs, truncate } from 'node:fs/promises';
import { dirname } from 'node:path';
import { promisify } from 'node:util';
import { Mutex } from '@torpor/host';

/** Enough for dozens of transactions. Small, so that a program which fills the disk gets little of the reserve. */
const STEP_BYTES = 512 * 1024;
/** Enough for a start with its migrations. */
const START_BYTES = 4 * 1024 ** 2;
/** The reserve does not grow into the last of the free room. */
const LEFT_FREE_BYTES = 8 * 1024 ** 2;
/** On a small disk the reserve takes no more than this part of it, and leaves as much free. */
const MAX_SHARE = 1 / 4;

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
  /** A transaction and the watch of the disk may want to change the file at the same time. */
  readonly #mutex = new Mutex();

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

  /** Frees one step for a write that found no room. False when there is nothing left to give. */
  releaseStep(): Promise<boolean> {
    return this.#mutex.run(async () => {
      if (this.#held === 0) return false;
      await this.#shrinkTo(Math.max(0, this.#held - STEP_BYTES));
      return true;
    });
  }

  /** Frees what a start needs beyond the room that there is. */
  releaseForStart(): Promise<void> {
    return this.#mutex.run(async () => {
      const { freeBytes } = await this.#disk();
      const missing = START_BYTES - freeBytes;
      if (missing > 0 && this.#held > 0) await this.#shrinkTo(Math.max(0, this.#held - missing));
    });
  }

  /** Takes back what was given up, as far as there is room. */
  refill(): Promise<ReserveState> {
    return this.#mutex.run(async () => {
      const { freeBytes, totalBytes } = await this.#disk();
      const wantedBytes = Math.min(this.#bytes, Math.floor(totalBytes * MAX_SHARE));
      const room = freeBytes - Math.min(LEFT_FREE_BYTES, Math.floor(totalBytes * MAX_SHARE));
      const missing = wantedBytes - this.#held;
      if (missing < 0) await this.#shrinkTo(wantedBytes);
      // All of it or nothing: a reserve that is whole is the sign that there is room again.
      else if (missing > 0 && room >= missing) await this.#growTo(wantedBytes);
      return { heldBytes: this.#held, wantedBytes };
    });
  }

  async #disk() {
    const { bavail, blocks, bsize } = await statfs(dirname(this.#path));
    return { freeBytes: bavail * bsize, totalBytes: blocks * bsize };
  }

  async #shrinkTo(bytes: number): Promise<void> {
    await truncate(this.#path, bytes);
    this.#held = bytes;
  }

  /** Leaves the file as it was when there is no room after all. */
  async #growTo(bytes: number): Promise<void> {
    const before = this.#held;
    try {
      await allocate(this.#path, before, bytes - before);
      this.#held = bytes;
    } catch {
      await this.#shrinkTo(before).catch(() => undefined);
    }
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

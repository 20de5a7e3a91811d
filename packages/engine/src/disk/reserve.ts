/**
 * Disk space that is reserved for killing, deleting and starting: a file whose blocks are allocated.
 *
 * When a write of the database finds the disk full, the file is shortened by one step and the write is tried again. The
 * file is shortened only for such a write, so that a program which fills the disk does not get the reserve too. The file
 * grows again when there is space.
 *
 * One process uses a data directory, so no other process changes the file. A crash leaves the file at any length, and the
 * next start continues from that length.
 */
import { open, stat, statfs, truncate } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Mutex, programOutput } from '@torpor/host';

/** Enough for dozens of transactions. Small, so that a program which fills the disk gets little of the reserve. */
const STEP_BYTES = 512 * 1024;
/** Enough for a start with its migrations. */
const START_BYTES = 4 * 1024 ** 2;
/** The reserve does not grow into the last free bytes of the disk. */
const LEFT_FREE_BYTES = 8 * 1024 ** 2;
/** On a small disk the reserve takes at most this share of the disk, and leaves as much free. */
const MAX_SHARE = 1 / 4;

export interface ReserveState {
  /** The length of the file now. */
  readonly heldBytes: number;
  /** The length of the file when there is space for all of it. */
  readonly wantedBytes: number;
}

export class DiskReserve {
  readonly #path: string;
  readonly #bytes: number;
  #allocated: number;
  /** A transaction and the watch of the disk may want to change the file at the same time. */
  readonly #mutex = new Mutex();

  private constructor(path: string, bytes: number, allocated: number) {
    this.#path = path;
    this.#bytes = bytes;
    this.#allocated = allocated;
  }

  /** Reads the length of the file and changes nothing. With `bytes` 0 there is no reserve. */
  static async open(path: string, bytes: number): Promise<DiskReserve> {
    const found = await stat(path).catch(() => undefined);
    return new DiskReserve(path, bytes, found?.size ?? 0);
  }

  /** Frees one step for a write that found the disk full. False when the reserve is used up. */
  releaseStep(): Promise<boolean> {
    return this.#mutex.run(async () => {
      if (this.#allocated === 0) return false;
      await this.#shrinkTo(Math.max(0, this.#allocated - STEP_BYTES));
      return true;
    });
  }

  /** Frees what a start of the server needs beyond the space that is free. */
  releaseForStart(): Promise<void> {
    return this.#mutex.run(async () => {
      const { freeBytes } = await this.#disk();
      const missing = START_BYTES - freeBytes;
      if (missing > 0 && this.#allocated > 0) await this.#shrinkTo(Math.max(0, this.#allocated - missing));
    });
  }

  /** Takes back what was released, once all of it fits. */
  refill(): Promise<ReserveState> {
    return this.#mutex.run(async () => {
      const { freeBytes, totalBytes } = await this.#disk();
      const wantedBytes = Math.min(this.#bytes, Math.floor(totalBytes * MAX_SHARE));
      const spare = freeBytes - Math.min(LEFT_FREE_BYTES, Math.floor(totalBytes * MAX_SHARE));
      const missing = wantedBytes - this.#allocated;
      if (missing < 0) await this.#shrinkTo(wantedBytes);
      // All of it or nothing: a complete reserve is the sign that the disk has space again.
      else if (missing > 0 && spare >= missing) await this.#growTo(wantedBytes);
      return { heldBytes: this.#allocated, wantedBytes };
    });
  }

  async #disk() {
    const { bavail, blocks, bsize } = await statfs(dirname(this.#path));
    return { freeBytes: bavail * bsize, totalBytes: blocks * bsize };
  }

  async #shrinkTo(bytes: number): Promise<void> {
    await truncate(this.#path, bytes);
    this.#allocated = bytes;
  }

  /** Leaves the file as it was when the disk turns out to be full. */
  async #growTo(bytes: number): Promise<void> {
    const before = this.#allocated;
    try {
      await allocate(this.#path, before, bytes - before);
      this.#allocated = bytes;
    } catch {
      await this.#shrinkTo(before).catch(() => undefined);
    }
  }
}

/** Allocates the blocks: a file that is only extended occupies no space. */
async function allocate(path: string, offset: number, bytes: number): Promise<void> {
  const file = await open(path, 'a', 0o600);
  try {
    // Node cannot call fallocate(2). Where the program is missing or the file system does not support it, the bytes are written.
    const args = ['--offset', String(offset), '--length', String(bytes), path];
    await programOutput('fallocate', args).catch(async () => {
      await file.writeFile(Buffer.alloc(bytes));
      await file.datasync();
    });
  } finally {
    await file.close();
  }
}

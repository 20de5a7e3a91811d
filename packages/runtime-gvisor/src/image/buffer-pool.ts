/**
 * A fixed number of equal buffers for work that comes in pieces. The pool bounds the memory that all users have
 * together: a piece waits for a buffer, in order of arrival, and the buffers are used again instead of being left to
 * the garbage collector, which is slow to free memory that it sees as a few bytes.
 */
export class BufferPool {
  readonly #bytes: number;
  readonly #free: Buffer[] = [];
  readonly #waiting: ((buffer: Buffer) => void)[] = [];
  #unmade: number;

  constructor(count: number, bytes: number) {
    this.#unmade = count;
    this.#bytes = bytes;
  }

  /** The buffer is the caller's until `work` has ended. */
  async use<T>(work: (buffer: Buffer) => Promise<T>): Promise<T> {
    const buffer = await this.#take();
    try {
      return await work(buffer);
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free.push(buffer);
      else next(buffer);
    }
  }

  async #take(): Promise<Buffer> {
    const free = this.#free.pop();
    if (free !== undefined) return free;
    if (this.#unmade === 0) return new Promise((resolve) => this.#waiting.push(resolve));
    this.#unmade--;
    return Buffer.allocUnsafeSlow(this.#bytes);
  }
}

/** Frees the memory of a buffer at once, with all that share it. Small ones share Node's own, and are left alone. */
export function freeNow({ buffer }: Buffer): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength > Buffer.poolSize) buffer.transfer(0);
}

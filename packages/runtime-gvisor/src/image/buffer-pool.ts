/**
 * A fixed number of equal buffers for work in pieces. The pool bounds the memory of all users together: a piece waits for a
 * buffer, in order of arrival. Buffers are reused instead of being left to the garbage collector, which is slow to free them
 * because it sees each as a few bytes.
 */
export class BufferPool {
  readonly #bytes: number;
  readonly #free: Buffer[] = [];
  readonly #waiting: ((buffer: Buffer) => void)[] = [];
  #notAllocated: number;

  constructor(count: number, bytes: number) {
    this.#notAllocated = count;
    this.#bytes = bytes;
  }

  /** The buffer belongs to the caller until `work` has ended. */
  async withBuffer<T>(work: (buffer: Buffer) => Promise<T>): Promise<T> {
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
    if (this.#notAllocated === 0) return new Promise((resolve) => this.#waiting.push(resolve));
    this.#notAllocated--;
    return Buffer.allocUnsafeSlow(this.#bytes);
  }
}

/** Frees the memory of a buffer at once, and of all buffers that share it. Small buffers share Node's pool and are left alone. */
export function freeNow({ buffer }: Buffer): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength > Buffer.poolSize) buffer.transfer(0);
}

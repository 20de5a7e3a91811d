/** Limits the bytes per second of all streams that pass through it together. */
import { setTimeout as sleep } from 'node:timers/promises';

export class Throttle {
  readonly #bytesPerSecond: number;
  /** When the bytes that were let through so far are paid for. */
  #freeAt = 0;

  /** 0: without a limit. */
  constructor(bytesPerSecond: number) {
    this.#bytesPerSecond = bytesPerSecond;
  }

  async *pass(content: AsyncIterable<Buffer>, signal?: AbortSignal): AsyncGenerator<Buffer> {
    for await (const chunk of content) {
      if (this.#bytesPerSecond > 0) await this.#wait(chunk.length, signal);
      yield chunk;
    }
  }

  async #wait(bytes: number, signal: AbortSignal | undefined): Promise<void> {
    const now = performance.now();
    const begin = Math.max(now, this.#freeAt);
    this.#freeAt = begin + (bytes * 1_000) / this.#bytesPerSecond;
    if (begin > now) await sleep(begin - now, undefined, signal === undefined ? {} : { signal });
  }
}

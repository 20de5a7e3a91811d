/** Runs a bounded number of works at once. Others wait in order of arrival. */
import { rejectOnAbort } from '@torpor/host';

export class Slots {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  /** Work that has not begun when the signal fires never begins. */
  async run<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    await this.#take(signal);
    try {
      signal.throwIfAborted();
      return await work();
    } finally {
      this.#release();
    }
  }

  async #take(signal: AbortSignal): Promise<void> {
    if (this.#free > 0) {
      this.#free -= 1;
      return;
    }
    let grant = () => {};
    const granted = new Promise<void>((resolve) => {
      grant = resolve;
    });
    this.#waiting.push(grant);
    try {
      await rejectOnAbort(granted, signal);
    } catch (thrown) {
      const at = this.#waiting.indexOf(grant);
      // A slot that was granted meanwhile goes to the next one.
      if (at >= 0) this.#waiting.splice(at, 1);
      else this.#release();
      throw thrown;
    }
  }

  #release(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free += 1;
    else next();
  }
}

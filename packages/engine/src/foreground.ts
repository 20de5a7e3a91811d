/**
 * What callers wait for now: the operations that this server drives, and resumes from their first query on. Work in the
 * background, such as an upload, shares the processors and the event loop with them, and gives way.
 *
 * Operations may follow each other without a gap, and the work must end too. So it gives way for at most half of the time.
 */
import { rejectOnAbort } from '@torpor/host';
import type { Clock } from './ports/clock.ts';

/** The longest time to give way at once. A start takes less, unless it waits for services. */
const LONGEST_MS = 2_000;

export class Foreground {
  readonly #clock: Clock;
  #underWay = 0;
  /** All work in the background waits together. */
  #waiting: Promise<void> | undefined;
  #end: () => void = () => {};
  /** How long the work may give way now: as long as it has gone on, up to `LONGEST_MS`. */
  #leftMs = LONGEST_MS;
  #wentOnAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs work that other work gives way to. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    this.#underWay++;
    try {
      return await work();
    } finally {
      if (--this.#underWay === 0) this.#end();
    }
  }

  /** Resolves at once when no operation is under way. */
  async giveWay(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#underWay === 0) return;
    this.#waiting ??= this.#wait().finally(() => {
      this.#waiting = undefined;
    });
    await rejectOnAbort(this.#waiting, signal);
  }

  async #wait(): Promise<void> {
    const began = this.#clock.monotonic();
    this.#leftMs = Math.min(LONGEST_MS, this.#leftMs + began - this.#wentOnAt);
    if (this.#leftMs > 0) {
      const ended = new AbortController();
      this.#end = () => ended.abort();
      await this.#clock.sleep(this.#leftMs, ended.signal).catch(() => {});
    }
    this.#wentOnAt = this.#clock.monotonic();
    this.#leftMs -= this.#wentOnAt - began;
  }
}

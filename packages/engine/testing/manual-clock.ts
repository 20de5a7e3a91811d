/** A clock that stands still until a test advances it. */
import type { Clock } from '../src/ports/clock.ts';

interface PendingSleep {
  readonly ms: number;
  readonly at: number;
  readonly wake: () => void;
}

export class ManualClock implements Clock {
  #now: number;
  readonly #start: number;
  readonly #sleeps = new Set<PendingSleep>();
  readonly #watchers = new Set<() => void>();

  constructor(now = 1_700_000_000_000) {
    this.#now = now;
    this.#start = now;
  }

  now(): number {
    return this.#now;
  }

  monotonic(): number {
    return this.#now - this.#start;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted === true) return reject(signal.reason);
      const onAbort = () => {
        this.#sleeps.delete(sleep);
        reject(signal?.reason);
      };
      const wake = () => {
        signal?.removeEventListener('abort', onAbort);
        resolve();
      };
      const sleep: PendingSleep = { ms, at: this.#now + ms, wake };
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#sleeps.add(sleep);
      for (const watcher of this.#watchers) watcher();
    });
  }

  /** Advances the time and ends the sleeps that are over by then, the earliest first. */
  advance(ms: number): void {
    this.#now += ms;
    const due = [...this.#sleeps].filter(({ at }) => at <= this.#now).sort((a, b) => a.at - b.at);
    for (const sleep of due) {
      this.#sleeps.delete(sleep);
      sleep.wake();
    }
  }

  /** Advances the time to the end of the earliest sleep; false when there is none. */
  advanceToNext(): boolean {
    const next = Math.min(...[...this.#sleeps].map(({ at }) => at));
    if (next === Number.POSITIVE_INFINITY) return false;
    this.advance(Math.max(0, next - this.#now));
    return true;
  }

  /** Resolves as soon as there is a sleep of exactly this length. */
  async untilAsleepFor(ms: number): Promise<void> {
    const isAsleep = () => [...this.#sleeps].some((sleep) => sleep.ms === ms);
    while (!isAsleep()) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#watchers.add(resolve);
      await promise;
      this.#watchers.delete(resolve);
    }
  }
}

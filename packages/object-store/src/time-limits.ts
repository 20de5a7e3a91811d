/** Time limits of calls to a store that may hang or be slow. */

import type { StoreLimits } from './object-store.ts';
import { type StorePlace, storeFailure } from './store-failure.ts';

/** Runs a call and aborts it after `ms`. A call that ignores the abort is given up: its result is dropped. */
export async function withinLimit<T>(
  ms: number,
  place: StorePlace,
  parent: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  parent?.throwIfAborted();
  const call = new AbortController();
  const late = Promise.withResolvers<never>();
  late.promise.catch(() => {});
  const end = (reason: unknown) => {
    call.abort(reason);
    late.reject(reason);
  };
  const timer = setTimeout(() => end(storeFailure('hanging', place)), ms);
  const onParent = () => end(parent?.reason);
  parent?.addEventListener('abort', onParent, { once: true });
  try {
    return await Promise.race([work(call.signal), late.promise]);
  } catch (thrown) {
    throw call.signal.aborted ? call.signal.reason : thrown;
  } finally {
    clearTimeout(timer);
    parent?.removeEventListener('abort', onParent);
  }
}

/** A timer that calls `onLate` when nothing has touched it for `ms`. */
export class Watchdog {
  readonly #ms: number;
  readonly #onLate: () => void;
  #timer: NodeJS.Timeout;

  constructor(ms: number, onLate: () => void) {
    this.#ms = ms;
    this.#onLate = onLate;
    this.#timer = setTimeout(onLate, ms);
  }

  touch(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#onLate, this.#ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}

/**
 * Passes the bytes of a store on. Throws `hanging` when no bytes come for `stallMs`, and `slow` when fewer than
 * `minBytesPerSecond` come during a whole `callMs`. Time in which the reader is busy does not count.
 */
export async function* atLeastAsFast(
  source: AsyncIterable<Uint8Array>,
  { stallMs, callMs, minBytesPerSecond }: StoreLimits,
  place: StorePlace,
  signal?: AbortSignal,
): AsyncGenerator<Buffer> {
  const reader = source[Symbol.asyncIterator]();
  let waited = 0;
  let came = 0;
  try {
    for (;;) {
      const began = performance.now();
      const next = await withinLimit(stallMs, place, signal, () => reader.next());
      if (next.done === true) return;
      waited += performance.now() - began;
      came += next.value.byteLength;
      if (waited >= callMs) {
        if (came < (minBytesPerSecond * waited) / 1_000) {
          const rate = Math.round((came * 1_000) / waited);
          throw storeFailure('slow', place, { why: `${rate} bytes per second` });
        }
        waited = 0;
        came = 0;
      }
      yield Buffer.from(next.value.buffer, next.value.byteOffset, next.value.byteLength);
    }
  } finally {
    // Not awaited: a source that hangs would not answer this either.
    reader.return?.().catch(() => {});
  }
}

/** Waits for a promise that depends on a manual clock, by advancing the clock. */
import { setImmediate as turn } from 'node:timers/promises';
import type { ManualClock } from './manual-clock.ts';

/** In real time, because a busy machine may delay a file system call for many turns of the event loop. */
const TIMEOUT_MS = 20_000;

/**
 * Returns the promise's result, and advances the clock whenever nothing else happens. For work without real input and
 * output except SQLite's, which is synchronous.
 */
export async function settle<T>(clock: ManualClock, promise: Promise<T>): Promise<T> {
  let done = false;
  const end = () => {
    done = true;
  };
  promise.then(end, end);
  const until = performance.now() + TIMEOUT_MS;
  while (!done && performance.now() < until) {
    for (let i = 0; i < 4 && !done; i++) await turn();
    if (!done) clock.advanceToNext();
  }
  if (!done) throw new Error('The promise did not settle.');
  return promise;
}

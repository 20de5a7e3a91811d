/** Waiting for something that itself waits for time, on a clock that only a test moves. */
import { setImmediate as turn } from 'node:timers/promises';
import type { ManualClock } from './manual-clock.ts';

/** By this machine's clock, because a busy one may keep a file to itself for many turns. */
const PATIENCE_MS = 20_000;

/**
 * The promise's result, moving time on whenever nothing else happens. For work that needs no other real
 * input or output than SQLite's, which answers at once.
 */
export async function settle<T>(clock: ManualClock, promise: Promise<T>): Promise<T> {
  let done = false;
  const end = () => {
    done = true;
  };
  promise.then(end, end);
  const until = performance.now() + PATIENCE_MS;
  while (!done && performance.now() < until) {
    for (let i = 0; i < 4 && !done; i++) await turn();
    if (!done) clock.advanceToNext();
  }
  if (!done) throw new Error('It never ended.');
  return promise;
}

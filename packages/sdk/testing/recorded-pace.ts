/** A pace whose sleeps take no time and are recorded. */
import type { Pace } from '../src/retry.ts';

export interface RecordedPace extends Pace {
  readonly slept: number[];
}

export function recordedPace(random: () => number = () => 0): RecordedPace {
  const slept: number[] = [];
  return {
    slept,
    now: () => Date.parse('2026-01-01T00:00:00Z'),
    random,
    sleep: async (ms, signal) => {
      signal?.throwIfAborted();
      slept.push(ms);
    },
  };
}

/** The port to time, so that tests do not wait. */
import { setTimeout as delay } from 'node:timers/promises';

export interface Clock {
  /** Milliseconds since 1970; may jump. For times that are stored or shown. */
  now(): number;
  /** Milliseconds since an arbitrary start; never jumps. For measuring durations. */
  monotonic(): number;
  /** Rejects with the signal's reason when it fires first. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep: (ms, signal) => delay(ms, undefined, signal === undefined ? {} : { signal }),
};

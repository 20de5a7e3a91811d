/** Time, passed in, so that nothing in a test has to wait for it. */
import { setTimeout as delay } from 'node:timers/promises';

export interface Clock {
  /** Milliseconds since 1970; may jump. For what is stored and shown. */
  now(): number;
  /** Milliseconds since some moment; never jumps. For measuring how long something takes. */
  monotonic(): number;
  /** Rejects with the signal's reason when it fires first. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep: (ms, signal) => delay(ms, undefined, signal === undefined ? {} : { signal }),
};

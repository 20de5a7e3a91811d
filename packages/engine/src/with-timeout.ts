/** Bounds the time of calls that may never answer. */
import { TorporError } from '@torpor/protocol';
import type { Clock } from './ports/clock.ts';

/**
 * The result of `work`, or a `timeout` after `ms`, or the reason of the parent signal when that fires first. `work`
 * may continue after that; its late result is dropped, and later observations find its effects.
 */
export async function withTimeout<T>(
  clock: Clock,
  ms: number,
  what: string,
  work: (signal: AbortSignal) => Promise<T>,
  parent?: AbortSignal,
): Promise<T> {
  parent?.throwIfAborted();
  const call = new AbortController();
  const timer = new AbortController();
  const bound = new Promise<never>((_, reject) => {
    const onParent = () => reject(parent?.reason);
    parent?.addEventListener('abort', onParent, { once: true });
    clock.sleep(ms, timer.signal).then(
      () => reject(new TorporError('timeout', `${what} took longer than ${ms} ms.`)),
      () => {},
    );
    timer.signal.addEventListener('abort', () => parent?.removeEventListener('abort', onParent), {
      once: true,
    });
  });
  bound.catch((reason: unknown) => call.abort(reason));
  try {
    return await Promise.race([work(call.signal), bound]);
  } finally {
    timer.abort();
  }
}

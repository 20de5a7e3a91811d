/** Repeats work that is refused because another operation of the sandbox is still in progress. */
import type { Clock } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';

const RETRY_MS = 50;
/** Less than the minute after which E2B's SDK gives up by itself. */
const MAX_WAIT_MS = 50_000;

/** Repeats `work` while it fails with `transitioning`, for at most `MAX_WAIT_MS`. `signal` ends the waiting earlier. */
export async function waitForTransition<T>(
  clock: Clock,
  signal: AbortSignal,
  work: () => Promise<T>,
): Promise<T> {
  const until = clock.monotonic() + MAX_WAIT_MS;
  for (;;) {
    try {
      return await work();
    } catch (thrown) {
      const isBusy = thrown instanceof TorporError && thrown.code === 'transitioning';
      if (!isBusy || clock.monotonic() >= until) throw thrown;
    }
    await clock.sleep(RETRY_MS, signal);
  }
}

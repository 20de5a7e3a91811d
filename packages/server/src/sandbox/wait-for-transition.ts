/** E2B's clients are not told that something else is under way: whatever they ask for waits for its turn. */
import { TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import type { RouteContext } from '../route-context.ts';

const RETRY_MS = 50;
/** Below the minute after which their SDK gives up by itself. */
const MAX_WAIT_MS = 50_000;

/** Repeats `work` for as long as it is refused because of something else that will end by itself. */
export async function waitForTransition<T>(
  { clock }: Pick<RouteContext, 'clock'>,
  request: FastifyRequest,
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
    await clock.sleep(RETRY_MS, request.deadline.signal);
  }
}

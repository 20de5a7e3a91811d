/** Asks an application by the way its visitors take until it answers below 500 (R7). */
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';

/** One answer may take this long: a first page is often built while it is asked for. */
const ANSWER_MS = 15_000;

export async function untilLive(
  ctx: BuildContext,
  id: SandboxId,
  port: number,
  signal: AbortSignal,
): Promise<number> {
  const { clock, settings } = ctx;
  const until = clock.monotonic() + settings.liveMs;
  let last: string;
  for (let pause = settings.firstLookMs; ; pause = Math.min(2 * pause, settings.longestLookMs)) {
    signal.throwIfAborted();
    try {
      const { status } = await ctx.sandboxes.visit(
        id,
        port,
        { method: 'GET', path: '/', timeoutMs: ANSWER_MS },
        signal,
      );
      if (status < 500) return status;
      last = `answered ${status}`;
    } catch (thrown) {
      signal.throwIfAborted();
      last = thrown instanceof TorporError ? thrown.message : 'did not answer';
    }
    if (clock.monotonic() >= until) {
      throw new TorporError('timeout', `The application did not come up: it ${last}.`, { sandboxId: id });
    }
    await clock.sleep(pause, signal);
  }
}

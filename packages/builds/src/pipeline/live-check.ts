/** Asks an application by the way its visitors take until the application itself answers below 500 (R7). */
import { ANSWERED_BY_HEADER, type SandboxId, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import type { Visit } from '../ports/sandboxes.ts';

/** One answer may take this long: a first page is often built while it is asked for. */
const ANSWER_MS = 15_000;

/** Whether the program in the sandbox answered. The gateway answers in its place while it cannot be reached. */
function isFromApp({ headers }: Visit): boolean {
  return headers[ANSWERED_BY_HEADER.toLowerCase()] === undefined;
}

export function isLive(visit: Visit): boolean {
  return isFromApp(visit) && visit.status < 500;
}

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
      const order = { method: 'GET', path: '/', timeoutMs: ANSWER_MS } as const;
      const visit = await ctx.sandboxes.visit(id, port, order, signal);
      if (isLive(visit)) return visit.status;
      last = isFromApp(visit)
        ? `answered ${visit.status}`
        : `could not be reached, the gateway answered ${visit.status}`;
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

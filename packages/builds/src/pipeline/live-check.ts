/** Requests the preview through the gateway, as clients do, until the application itself answers below 500 (R7). */
import { ANSWERED_BY_HEADER, type SandboxId, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import type { PreviewResponse } from '../ports/sandboxes.ts';

/** Timeout of one request: dev servers often build the first page during the request. */
const ANSWER_MS = 15_000;

/** Whether the application answered. While it cannot be reached, the gateway answers in its place. */
function isFromApp({ headers }: PreviewResponse): boolean {
  return headers[ANSWERED_BY_HEADER.toLowerCase()] === undefined;
}

export function isLive(response: PreviewResponse): boolean {
  return isFromApp(response) && response.status < 500;
}

export async function waitUntilLive(
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
      const request = { method: 'GET', path: '/', timeoutMs: ANSWER_MS } as const;
      const response = await ctx.sandboxes.requestPreview(id, port, request, signal);
      if (isLive(response)) return response.status;
      last = isFromApp(response)
        ? `answered ${response.status}`
        : `could not be reached, the gateway answered ${response.status}`;
    } catch (thrown) {
      signal.throwIfAborted();
      last = thrown instanceof TorporError ? thrown.message : 'did not answer';
    }
    if (clock.monotonic() >= until) {
      throw new TorporError('timeout', `The application did not start: it ${last}.`, { sandboxId: id });
    }
    await clock.sleep(pause, signal);
  }
}

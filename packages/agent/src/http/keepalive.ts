/** Keepalive messages on a quiet stream: without them, proxies between agent and client close it. */
import { KEEPALIVE_HEADER } from '@torpor/envd';

const DEFAULT_SECONDS = 90;
const MAX_SECONDS = 3600;

export function keepaliveMs(headers: Headers): number {
  const seconds = Number(headers.get(KEEPALIVE_HEADER) ?? DEFAULT_SECONDS);
  if (!Number.isFinite(seconds) || seconds < 1) return DEFAULT_SECONDS * 1000;
  return Math.min(seconds, MAX_SECONDS) * 1000;
}

/** Yields what `next` returns until it returns undefined, and a `ping` after each interval without a message. */
export async function* withKeepalive<T>(
  next: () => Promise<T | undefined>,
  ping: () => T,
  intervalMs: number,
): AsyncGenerator<T> {
  for (;;) {
    const pending = next();
    // The reader may have left the stream by the time this fails; then the rejection has no other handler.
    pending.catch(() => {});
    let item = await nextOrQuiet(pending, intervalMs);
    while (item === QUIET) {
      yield ping();
      item = await nextOrQuiet(pending, intervalMs);
    }
    if (item === undefined) return;
    yield item;
  }
}

const QUIET = Symbol('quiet');

async function nextOrQuiet<T>(pending: Promise<T>, ms: number): Promise<T | typeof QUIET> {
  let timer: NodeJS.Timeout | undefined;
  const quiet = new Promise<typeof QUIET>((resolve) => {
    timer = setTimeout(resolve, ms, QUIET);
  });
  try {
    return await Promise.race([pending, quiet]);
  } finally {
    clearTimeout(timer);
  }
}

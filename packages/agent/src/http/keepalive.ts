/** Signs of life on a quiet stream: without them proxies on the way take it for dead. */
import { KEEPALIVE_HEADER } from '@torpor/envd';

const DEFAULT_SECONDS = 90;
const MAX_SECONDS = 3600;

export function keepaliveMs(headers: Headers): number {
  const seconds = Number(headers.get(KEEPALIVE_HEADER) ?? DEFAULT_SECONDS);
  if (!Number.isFinite(seconds) || seconds < 1) return DEFAULT_SECONDS * 1000;
  return Math.min(seconds, MAX_SECONDS) * 1000;
}

/** What `next` gives until it gives undefined, with a `ping` wherever nothing came for so long. */
export async function* withKeepalive<T>(
  next: () => Promise<T | undefined>,
  ping: () => T,
  intervalMs: number,
): AsyncGenerator<T> {
  for (;;) {
    const pending = next();
    // Nobody may be waiting for it any more when it fails: the stream was given up in the meantime.
    pending.catch(() => {});
    let item = await firstOf(pending, intervalMs);
    while (item === QUIET) {
      yield ping();
      item = await firstOf(pending, intervalMs);
    }
    if (item === undefined) return;
    yield item;
  }
}

const QUIET = Symbol('quiet');

async function firstOf<T>(pending: Promise<T>, ms: number): Promise<T | typeof QUIET> {
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

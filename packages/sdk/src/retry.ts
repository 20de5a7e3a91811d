/**
 * Decides when a request is repeated: after the statuses and transport faults of a sandbox that is waking. `transport.ts`
 * decides which requests may be repeated: reads, and creations under an idempotency key.
 */
import { isTransportFault } from './transport-fault.ts';

/** Time and randomness, which a test can replace. */
export interface Pace {
  now(): number;
  /** Rejects with the signal's reason as soon as the signal fires. */
  sleep(ms: number, signal: AbortSignal | undefined): Promise<void>;
  /** Uniform in [0, 1). */
  random(): number;
}

export const realPace: Pace = {
  now: Date.now,
  random: Math.random,
  sleep: (ms, signal) =>
    new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const onAbort = () => {
        clearTimeout(timer);
        reject(signal?.reason);
      };
      const timer = setTimeout(() => {
        signal?.removeEventListener('abort', onAbort);
        resolve();
      }, ms);
      signal?.addEventListener('abort', onAbort, { once: true });
    }),
};

/** The delay before another attempt: it doubles from `baseMs`, up to `capMs`. */
export interface Backoff {
  readonly baseMs: number;
  readonly capMs: number;
}

export const USUAL_BACKOFF: Backoff = { baseMs: 200, capMs: 2_000 };
const DEFAULT_RETRIES = 5;
/** The statuses of a sandbox that is waking, and of an overloaded server. */
const RETRYABLE_STATUSES: ReadonlySet<number> = new Set([425, 429, 502, 503, 504]);
const READS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

export function isRead(method: string): boolean {
  return READS.has(method.toUpperCase());
}

/** Parses `TORPOR_READ_RETRIES`: an integer, 0 or less for none. Any other text is ignored. */
export function retriesOf(setting: string | undefined): number {
  if (setting === undefined || !/^\s*[+-]?\d+\s*$/.test(setting)) return DEFAULT_RETRIES;
  return Math.max(0, Number(setting));
}

/** The given number, or `otherwise`. NaN is ignored: the loop would never reach it. */
export function budgetOf(given: number | undefined, otherwise: number): number {
  return given === undefined || Number.isNaN(given) ? otherwise : given;
}

/** The delay before retry number `n`, counted from 1. The jitter spreads many waiting clients. */
export function backoffMs(n: number, random: () => number, { baseMs, capMs } = USUAL_BACKOFF): number {
  return Math.min(baseMs * 2 ** (n - 1), capMs) + random() * baseMs;
}

/** The delay that `Retry-After` asks for, in seconds or as a date, at most `capMs`. */
export function retryAfterMs(header: string | null, now: number, { capMs } = USUAL_BACKOFF): number {
  if (header === null) return 0;
  const seconds = /^\s*\d+\s*$/.test(header);
  // `Date.parse` takes "-1" for a year; an HTTP date contains the names of its day and month.
  const ms = seconds ? Number(header) * 1_000 : /[A-Za-z]{3}/.test(header) ? Date.parse(header) - now : 0;
  return Number.isNaN(ms) ? 0 : Math.min(Math.max(ms, 0), capMs);
}

/**
 * Resolves or rejects with the first result that is not to be repeated. After `retries` repetitions, whatever the mixture
 * of faults, that is the last response or the last error, unchanged.
 */
export async function withRetries(
  attempt: () => Promise<Response>,
  retries: number,
  pace: Pace,
  {
    signal,
    backoff = USUAL_BACKOFF,
  }: { readonly signal?: AbortSignal | undefined; readonly backoff?: Backoff } = {},
): Promise<Response> {
  for (let n = 1; ; n++) {
    const last = n > retries;
    let requestedMs = 0;
    try {
      const response = await attempt();
      if (last || !RETRYABLE_STATUSES.has(response.status)) return response;
      requestedMs = retryAfterMs(response.headers.get('retry-after'), pace.now(), backoff);
      // Frees the connection, which an unread body would hold.
      void response.body?.cancel().catch(() => {});
    } catch (thrown) {
      if (last || signal?.aborted || !isTransportFault(thrown)) throw thrown;
    }
    await pace.sleep(Math.max(backoffMs(n, pace.random, backoff), requestedMs), signal);
  }
}

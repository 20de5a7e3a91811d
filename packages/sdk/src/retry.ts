/**
 * When a request is sent again: on the statuses and broken connections of a sandbox that is just waking. Which
 * requests may be is decided in `transport.ts`: reads, and what the server does once however often it is sent.
 */
import { isTransportFault } from './transport-fault.ts';

/** Time and chance, which a test may choose. */
export interface Pace {
  now(): number;
  /** Rejects with the signal's reason as soon as it fires. */
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

/** How long to wait before another attempt: doubling from `baseMs`, never more than `capMs`. */
export interface Backoff {
  readonly baseMs: number;
  readonly capMs: number;
}

export const USUAL_BACKOFF: Backoff = { baseMs: 200, capMs: 2_000 };
const DEFAULT_RETRIES = 5;
const WAKING: ReadonlySet<number> = new Set([425, 429, 502, 503, 504]);
const READS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

export function isRead(method: string): boolean {
  return READS.has(method.toUpperCase());
}

/** `TORPOR_READ_RETRIES`: an integer, 0 or less for none; anything else is as if it were not set. */
export function retriesOf(setting: string | undefined): number {
  if (setting === undefined || !/^\s*[+-]?\d+\s*$/.test(setting)) return DEFAULT_RETRIES;
  return Math.max(0, Number(setting));
}

/** A number that was given, unless it is none: comparing with that would never end. */
export function budgetOf(given: number | undefined, otherwise: number): number {
  return given === undefined || Number.isNaN(given) ? otherwise : given;
}

/** The wait before retry number `n`, counted from 1. Chance keeps many waiting clients from coming at once. */
export function backoffMs(n: number, random: () => number, { baseMs, capMs } = USUAL_BACKOFF): number {
  return Math.min(baseMs * 2 ** (n - 1), capMs) + random() * baseMs;
}

/** What `Retry-After` asks for, in either of its forms, as far as the cap allows. */
export function retryAfterMs(header: string | null, now: number, { capMs } = USUAL_BACKOFF): number {
  if (header === null) return 0;
  const seconds = /^\s*\d+\s*$/.test(header);
  // The parser takes "-1" for a year; a date has the names of its day and month.
  const ms = seconds ? Number(header) * 1_000 : /[A-Za-z]{3}/.test(header) ? Date.parse(header) - now : 0;
  return Number.isNaN(ms) ? 0 : Math.min(Math.max(ms, 0), capMs);
}

/**
 * The first answer or error that is not to be tried again. When the budget is used up that is the last
 * response, untouched, or the last error, as it was thrown. `retries` is how many attempts may follow the first
 * one, whatever the mixture of faults.
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
    let asked = 0;
    try {
      const response = await attempt();
      if (last || !WAKING.has(response.status)) return response;
      asked = retryAfterMs(response.headers.get('retry-after'), pace.now(), backoff);
      // Frees the connection; a body nobody reads would hold it.
      void response.body?.cancel().catch(() => {});
    } catch (thrown) {
      if (last || signal?.aborted || !isTransportFault(thrown)) throw thrown;
    }
    await pace.sleep(Math.max(backoffMs(n, pace.random, backoff), asked), signal);
  }
}

/**
 * When a request is sent again: reads, on the statuses and broken connections of a sandbox that is just
 * waking, and never anything that might be done twice.
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

const BASE_MS = 200;
const CAP_MS = 2_000;
const DEFAULT_RETRIES = 5;
const WAKING: ReadonlySet<number> = new Set([425, 429, 502, 503, 504]);
const READS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

/** What may cause another attempt. */
export interface Rules {
  /** How many attempts may follow the first one, whatever the mixture of faults. */
  readonly retries: number;
  readonly onStatus: boolean;
  readonly onTransportFault: boolean;
}

export function isRead(method: string): boolean {
  return READS.has(method.toUpperCase());
}

export const readRules = (retries: number): Rules => ({ retries, onStatus: true, onTransportFault: true });

/** For a request with an idempotency key: an answer is final, and only a lost one is asked for again. */
export const keyedRules = (retries: number): Rules => ({ retries, onStatus: false, onTransportFault: true });

export const once: Rules = { retries: 0, onStatus: false, onTransportFault: false };

/** `TORPOR_READ_RETRIES`: an integer, 0 or less for none; anything else is as if it were not set. */
export function retriesOf(setting: string | undefined): number {
  if (setting === undefined || !/^\s*[+-]?\d+\s*$/.test(setting)) return DEFAULT_RETRIES;
  return Math.max(0, Number(setting));
}

/** The wait before retry number `n`, counted from 1. */
export function backoffMs(n: number, random: () => number): number {
  return Math.min(BASE_MS * 2 ** (n - 1), CAP_MS) + random() * BASE_MS;
}

/** What `Retry-After` asks for, in either of its forms, as far as our cap allows. */
export function retryAfterMs(header: string | null, now: number): number {
  if (header === null) return 0;
  const seconds = /^\s*\d+\s*$/.test(header);
  // The parser takes "-1" for a year; a date has the names of its day and month.
  const ms = seconds ? Number(header) * 1_000 : /[A-Za-z]{3}/.test(header) ? Date.parse(header) - now : 0;
  return Number.isNaN(ms) ? 0 : Math.min(Math.max(ms, 0), CAP_MS);
}

/**
 * The first answer or error that is not to be tried again. When the budget is used up that is the last
 * response, untouched, or the last error, as it was thrown.
 */
export async function withRetries(
  attempt: () => Promise<Response>,
  rules: Rules,
  pace: Pace,
  signal?: AbortSignal,
): Promise<Response> {
  for (let n = 1; ; n++) {
    const last = n > rules.retries;
    let asked = 0;
    try {
      const response = await attempt();
      if (last || !rules.onStatus || !WAKING.has(response.status)) return response;
      asked = retryAfterMs(response.headers.get('retry-after'), pace.now());
      // Frees the connection; a body nobody reads would hold it.
      void response.body?.cancel().catch(() => {});
    } catch (thrown) {
      if (last || signal?.aborted || !rules.onTransportFault || !isTransportFault(thrown)) throw thrown;
    }
    await pace.sleep(Math.max(backoffMs(n, pace.random), asked), signal);
  }
}

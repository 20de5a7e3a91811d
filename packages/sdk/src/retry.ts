/**
 * When a request is sent again: reads, on the statuses and broken connections of a sandbox that is just
 * waking, and never anything that might be done twice.
 */
import { provesNotDispatched } from './not-dispatched.ts';
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

/** What may cause another attempt. */
export interface Rules {
  /** How many attempts may follow the first one, whatever the mixture of faults. */
  readonly retries: number;
  /** The statuses of a sandbox that is waking. */
  readonly onWaking: boolean;
  readonly onTransportFault: boolean;
  /** Such a status together with the proof that nothing inside the sandbox has seen the request. */
  readonly onNotDispatched: boolean;
}

export function isRead(method: string): boolean {
  return READS.has(method.toUpperCase());
}

export function readRules(retries: number): Rules {
  return { retries, onWaking: true, onTransportFault: true, onNotDispatched: false };
}

/** For a request with an idempotency key: an answer is final, and only a lost one is asked for again. */
export function keyedRules(retries: number): Rules {
  return { retries, onWaking: false, onTransportFault: true, onNotDispatched: false };
}

/** For what is passed on into a sandbox and might be done twice there. */
export function dispatchedRules(retries: number): Rules {
  return { retries, onWaking: false, onTransportFault: false, onNotDispatched: true };
}

export const once: Rules = { retries: 0, onWaking: false, onTransportFault: false, onNotDispatched: false };

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
 * response, untouched, or the last error, as it was thrown.
 */
export async function withRetries(
  attempt: () => Promise<Response>,
  rules: Rules,
  pace: Pace,
  {
    signal,
    backoff = USUAL_BACKOFF,
  }: { readonly signal?: AbortSignal | undefined; readonly backoff?: Backoff } = {},
): Promise<Response> {
  for (let n = 1; ; n++) {
    const last = n > rules.retries;
    let asked = 0;
    try {
      const response = await attempt();
      if (last || !(await mayComeAgain(response, rules))) return response;
      asked = retryAfterMs(response.headers.get('retry-after'), pace.now(), backoff);
      // Frees the connection; a body nobody reads would hold it.
      void response.body?.cancel().catch(() => {});
    } catch (thrown) {
      if (last || signal?.aborted || !rules.onTransportFault || !isTransportFault(thrown)) throw thrown;
    }
    await pace.sleep(Math.max(backoffMs(n, pace.random, backoff), asked), signal);
  }
}

async function mayComeAgain(response: Response, { onWaking, onNotDispatched }: Rules): Promise<boolean> {
  if (!WAKING.has(response.status)) return false;
  return onWaking || (onNotDispatched && (await provesNotDispatched(response)));
}

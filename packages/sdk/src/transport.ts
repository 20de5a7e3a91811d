/**
 * One request to the native API: address, key, retries, and errors as our classes. What a call means is
 * the business of the files above it.
 */
import { type Environment, environment } from './environment.ts';
import { errorOfAnswer } from './errors.ts';
import {
  isRead,
  keyedRules,
  once,
  type Pace,
  type Rules,
  readRules,
  realPace,
  retriesOf,
  withRetries,
} from './retry.ts';
import { AttemptTimeout } from './transport-fault.ts';

export interface TransportOptions {
  /** Where the server is; else `TORPOR_URL`, else this machine. */
  readonly url?: string | undefined;
  /** Else `TORPOR_API_KEY`. */
  readonly apiKey?: string | undefined;
  /** The user on whose behalf a service key acts. */
  readonly user?: string | undefined;
  /** How often a read is tried again; else `TORPOR_READ_RETRIES`, else 5. */
  readonly retries?: number | undefined;
  /** How long one attempt of a read may wait for its answer to begin. */
  readonly attemptTimeoutMs?: number | undefined;
  readonly fetch?: typeof fetch | undefined;
  readonly pace?: Pace | undefined;
  readonly env?: Environment | undefined;
  readonly randomBytes?: ((n: number) => Uint8Array) | undefined;
}

export type Query = Readonly<Record<string, string | number | boolean | undefined>>;

export interface Call {
  readonly method: string;
  readonly path: string;
  readonly query?: Query | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Sent as it is. A stream can be sent only once, so a call that has one is never repeated. */
  readonly body?: RequestInit['body'] | undefined;
  /** Sent as `Idempotency-Key`. */
  readonly idempotencyKey?: string | undefined;
  /** A lost answer is asked for again under the same idempotency key. */
  readonly repeatWhenLost?: boolean | undefined;
  /** Whether the attempt includes the body, so that a truncated one is an attempt that failed. */
  readonly whole?: boolean | ((response: Response) => boolean) | undefined;
  readonly signal?: AbortSignal | undefined;
}

export const DEFAULT_URL = 'http://127.0.0.1:7676';
/** A little longer than the server lets a sandbox take to wake. */
const ATTEMPT_TIMEOUT_MS = 130_000;

export class Transport {
  readonly url: string;
  readonly pace: Pace;
  readonly retries: number;
  readonly apiKey: string | undefined;
  private readonly options: TransportOptions;

  constructor(options: TransportOptions = {}) {
    const env = options.env ?? environment();
    this.options = options;
    this.url = (options.url ?? (env['TORPOR_URL'] || DEFAULT_URL)).replace(/\/+$/, '');
    this.apiKey = options.apiKey ?? (env['TORPOR_API_KEY'] || undefined);
    this.pace = options.pace ?? realPace;
    this.retries = options.retries ?? retriesOf(env['TORPOR_READ_RETRIES']);
  }

  /** The answer, whatever its status. */
  send(call: Call): Promise<Response> {
    const rules = this.rulesFor(call);
    return withRetries(() => this.attempt(call, rules), rules, this.pace, call.signal);
  }

  /** The answer when it is a good one; any other is thrown as its error. */
  async ask(call: Call): Promise<Response> {
    const response = await this.send(call);
    if (response.ok) return response;
    throw await errorOf(response);
  }

  /** A key for a request that is to be done once, however often it is sent. */
  newIdempotencyKey(): string {
    const randomBytes = this.options.randomBytes ?? ((n) => crypto.getRandomValues(new Uint8Array(n)));
    return [...randomBytes(16)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  }

  address(path: string, query: Query = {}): URL {
    const url = new URL(this.url + path);
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined) url.searchParams.set(name, String(value));
    }
    return url;
  }

  private rulesFor(call: Call): Rules {
    if (call.body !== undefined && call.body !== null) return once;
    if (isRead(call.method)) return readRules(this.retries);
    if (call.repeatWhenLost && call.idempotencyKey !== undefined) return keyedRules(this.retries);
    return once;
  }

  private async attempt(call: Call, rules: Rules): Promise<Response> {
    const { whole = false } = call;
    const response = await this.fetchOnce(call, rules);
    if (typeof whole === 'function' ? whole(response) : whole) await arriveWhole(response);
    return response;
  }

  private async fetchOnce(call: Call, rules: Rules): Promise<Response> {
    const request = this.request(call);
    const doFetch = this.options.fetch ?? fetch;
    // Only a read is given up: what a mutation does goes on without its caller, who must not be misled.
    if (rules === once || !isRead(call.method)) return doFetch(request);
    const ms = this.options.attemptTimeoutMs ?? ATTEMPT_TIMEOUT_MS;
    const cut = new AbortController();
    const timer = setTimeout(() => cut.abort(new AttemptTimeout(ms)), ms);
    const signal = call.signal === undefined ? cut.signal : AbortSignal.any([cut.signal, call.signal]);
    try {
      return await doFetch(request, { signal });
    } finally {
      clearTimeout(timer);
    }
  }

  private request(call: Call): Request {
    const headers = new Headers(call.headers);
    if (this.apiKey !== undefined) headers.set('authorization', `Bearer ${this.apiKey}`);
    if (this.options.user !== undefined) headers.set('torpor-user', this.options.user);
    if (call.idempotencyKey !== undefined) headers.set('idempotency-key', call.idempotencyKey);
    if (call.json !== undefined) headers.set('content-type', 'application/json');
    const body = call.json === undefined ? call.body : JSON.stringify(call.json);
    return new Request(this.address(call.path, call.query), {
      method: call.method.toUpperCase(),
      headers,
      // Following a redirect would hand the key on, and turn a mutation into a read.
      redirect: 'manual',
      ...(body === undefined ? {} : { body }),
      ...(body instanceof ReadableStream ? { duplex: 'half' } : {}),
      ...(call.signal === undefined ? {} : { signal: call.signal }),
    });
  }
}

/** Reads a copy to its end; the response keeps its body for whoever asked. */
async function arriveWhole(response: Response): Promise<void> {
  const reader = response.clone().body?.getReader();
  while (reader !== undefined && !(await reader.read()).done);
}

async function errorOf(response: Response) {
  const text = await response.text();
  return errorOfAnswer(response.status, response.headers.get('x-request-id'), parsed(text));
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * One request to the native API: address, key, retries, and errors as our classes. What a call means is
 * the business of the files above it.
 */
import { isAnsweredByGateway } from '@torpor/protocol';
import { type Environment, environment } from './environment.ts';
import { type ApiError, errorOfAnswer } from './errors.ts';
import { plainFetch } from './plain-fetch.ts';
import { restless } from './restless.ts';
import {
  type Backoff,
  budgetOf,
  isRead,
  type Pace,
  realPace,
  retriesOf,
  USUAL_BACKOFF,
  withRetries,
} from './retry.ts';
import { AttemptTimeout } from './transport-fault.ts';
import type { StandardSocketClass } from './web-socket.ts';

export interface TransportOptions {
  /** Where the server is; else `TORPOR_URL`, else this machine. */
  readonly url?: string | undefined;
  /** Else `TORPOR_API_KEY`. */
  readonly apiKey?: string | undefined;
  /** The user on whose behalf a service key acts. */
  readonly user?: string | undefined;
  /** The organisation that the key is believed to belong to: the server refuses every call when it does not. */
  readonly orgId?: string | undefined;
  /** How often a read is tried again, 0 for never; else `TORPOR_READ_RETRIES`, else 5. */
  readonly retries?: number | undefined;
  /** The wait before each of those tries; from 0.2 s doubling to 2 s unless said otherwise. */
  readonly backoff?: { readonly [K in keyof Backoff]?: Backoff[K] | undefined } | undefined;
  /** How long one attempt of a read may go without a sign of its answer. */
  readonly attemptTimeoutMs?: number | undefined;
  /** How long a stream of events may be silent before its connection is taken for dead. */
  readonly silenceMs?: number | undefined;
  readonly fetch?: typeof fetch | undefined;
  /** What terminals and commands with a stream for stdin are opened with; else the global one. */
  readonly webSocket?: StandardSocketClass | undefined;
  readonly pace?: Pace | undefined;
  readonly env?: Environment | undefined;
  readonly randomBytes?: ((n: number) => Uint8Array) | undefined;
}

export type Query = Readonly<Record<string, string | number | boolean | undefined>>;

export interface Call {
  readonly method: string;
  readonly path: string;
  readonly query?: Query | undefined;
  readonly headers?: RequestInit['headers'] | undefined;
  /** The header that the key travels in; `authorization` unless that one is somebody else's here. */
  readonly keyHeader?: 'authorization' | 'x-api-key' | undefined;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Sent as it is. A stream can be sent only once, so a call that has one is never repeated. */
  readonly body?: RequestInit['body'] | undefined;
  /** Sent as `Idempotency-Key`. */
  readonly idempotencyKey?: string | undefined;
  /** Sent again as a read is, under the same idempotency key: the server does it once. No other mutation ever is. */
  readonly repeatUnderKey?: boolean | undefined;
  /** Instead of the client's own number, where the call may be sent again at all. */
  readonly retries?: number | undefined;
  /** Whether the attempt includes the body, so that a truncated one is an attempt that failed. */
  readonly whole?: boolean | ((response: Response) => boolean) | undefined;
  readonly signal?: AbortSignal | undefined;
}

export const DEFAULT_URL = 'http://127.0.0.1:7676';
/** A little longer than the server lets a sandbox take to wake. */
const ATTEMPT_TIMEOUT_MS = 130_000;
/** Three of the signs of life that a server gives on a stream on which nothing happens. */
const SILENCE_MS = 45_000;

/** What stands behind such a path is the app's, the query too. */
const LEADS_INTO_SANDBOX = /^\/v1\/sandboxes\/[^/]+\/ports\/\d/;

export class Transport {
  readonly url: string;
  readonly pace: Pace;
  readonly retries: number;
  readonly backoff: Backoff;
  readonly silenceMs: number;
  readonly apiKey: string | undefined;
  readonly webSocket: StandardSocketClass | undefined;
  private readonly options: TransportOptions;
  private readonly attemptTimeoutMs: number;

  constructor(options: TransportOptions = {}) {
    const env = options.env ?? environment();
    this.options = options;
    this.url = (options.url ?? (env['TORPOR_URL'] || DEFAULT_URL)).replace(/\/+$/, '');
    this.apiKey = options.apiKey ?? (env['TORPOR_API_KEY'] || undefined);
    this.pace = options.pace ?? realPace;
    this.retries = budgetOf(options.retries, retriesOf(env['TORPOR_READ_RETRIES']));
    this.backoff = {
      baseMs: options.backoff?.baseMs ?? USUAL_BACKOFF.baseMs,
      capMs: options.backoff?.capMs ?? USUAL_BACKOFF.capMs,
    };
    this.silenceMs = options.silenceMs ?? SILENCE_MS;
    this.attemptTimeoutMs = options.attemptTimeoutMs ?? ATTEMPT_TIMEOUT_MS;
    this.webSocket = options.webSocket ?? globalThis.WebSocket;
  }

  /** The answer, whatever its status. */
  send(call: Call): Promise<Response> {
    const { signal } = call;
    const retries = mayBeRepeated(call) ? budgetOf(call.retries, this.retries) : 0;
    return withRetries(() => this.attempt(call), retries, this.pace, { signal, backoff: this.backoff });
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
    const { orgId } = this.options;
    if (orgId !== undefined && !LEADS_INTO_SANDBOX.test(path)) url.searchParams.set('orgId', orgId);
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined) url.searchParams.set(name, String(value));
    }
    return url;
  }

  private async attempt(call: Call): Promise<Response> {
    const { whole = false } = call;
    // Only a read is given up: what a mutation does goes on without its caller, who must not be misled.
    const patienceMs = isRead(call.method) ? this.attemptTimeoutMs : undefined;
    const response = await this.fetchWithin(call, patienceMs);
    if (typeof whole === 'function' ? whole(response) : whole) await arriveWhole(response, patienceMs);
    return response;
  }

  private async fetchWithin(call: Call, ms: number | undefined): Promise<Response> {
    const request = this.request(call);
    const doFetch = this.options.fetch ?? fetch;
    if (ms === undefined) return plainFetch(doFetch, request);
    const cut = new AbortController();
    const timer = setTimeout(() => cut.abort(new AttemptTimeout(ms)), ms);
    const signal = call.signal === undefined ? cut.signal : AbortSignal.any([cut.signal, call.signal]);
    try {
      return await plainFetch(doFetch, request, { signal });
    } finally {
      clearTimeout(timer);
    }
  }

  private request(call: Call): Request {
    const body = call.json === undefined ? call.body : JSON.stringify(call.json);
    return new Request(this.address(call.path, call.query), {
      method: call.method.toUpperCase(),
      headers: this.headersFor(call),
      // Following a redirect would hand the key on, and turn a mutation into a read.
      redirect: 'manual',
      ...(body === undefined ? {} : { body }),
      ...(isOneShot(body) ? { duplex: 'half' } : {}),
      ...(call.signal === undefined ? {} : { signal: call.signal }),
    });
  }

  private headersFor({ headers: given, keyHeader = 'authorization', idempotencyKey, json }: Call): Headers {
    const headers = new Headers(given);
    const { apiKey } = this;
    if (apiKey !== undefined) headers.set(keyHeader, keyHeader === 'x-api-key' ? apiKey : `Bearer ${apiKey}`);
    if (this.options.user !== undefined) headers.set('torpor-user', this.options.user);
    if (idempotencyKey !== undefined) headers.set('idempotency-key', idempotencyKey);
    if (json !== undefined) headers.set('content-type', 'application/json');
    return headers;
  }
}

/** No answer can prove that a mutation was not done: an app behind the gateway writes whatever it likes. */
function mayBeRepeated({ method, body, idempotencyKey, repeatUnderKey }: Call): boolean {
  if (isOneShot(body)) return false;
  return isRead(method) || (repeatUnderKey === true && idempotencyKey !== undefined);
}

/** Streams, and whatever else is not known to give the same bytes a second time. */
function isOneShot(body: RequestInit['body'] | undefined): boolean {
  if (body === undefined || body === null || typeof body === 'string') return false;
  return !(
    body instanceof ArrayBuffer ||
    ArrayBuffer.isView(body) ||
    body instanceof Blob ||
    body instanceof URLSearchParams ||
    body instanceof FormData
  );
}

/** Reads a copy to its end; the response keeps its body for whoever asked. */
async function arriveWhole(response: Response, patienceMs: number | undefined): Promise<void> {
  const { body } = response.clone();
  if (body === null) return;
  const reader = (patienceMs === undefined ? body : restless(body, patienceMs)).getReader();
  try {
    while (!(await reader.read()).done);
  } catch (thrown) {
    // The copy's connection is closed only when the original is let go of too.
    response.body?.cancel().catch(() => {});
    throw thrown;
  }
}

async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text();
  return errorOfAnswer(response.status, response.headers.get('x-request-id'), parsed(text));
}

/**
 * The refusal of the gateway that this answer is, or undefined when the app answered, whatever it said. The response
 * keeps its body.
 *
 * ```ts
 * const response = await sandbox.fetch(3000, '/');
 * const refusal = await gatewayErrorOf(response);
 * if (refusal instanceof PortClosedError) console.log(refusal.details?.['openPorts']);
 * ```
 */
export async function gatewayErrorOf(response: Response): Promise<ApiError | undefined> {
  return response.ok || !isAnsweredByGateway(response.headers) ? undefined : errorOf(response.clone());
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

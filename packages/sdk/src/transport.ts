/** One request to the native API: address, key, retries, and errors as classes. Other files define the calls. */
import { isAnsweredByGateway } from '@torpor/protocol';
import { type ApiError, errorOfAnswer } from './errors.ts';
import { withIdleTimeout } from './idle-timeout.ts';
import { plainFetch } from './plain-fetch.ts';
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

/** Environment variables; a browser has none. */
type Environment = Readonly<Record<string, string | undefined>>;

export interface TransportOptions {
  /** The address of the server; default `TORPOR_URL`, else this machine. */
  readonly url?: string | undefined;
  /** Default: `TORPOR_API_KEY`. */
  readonly apiKey?: string | undefined;
  /** The user on whose behalf a service key acts. */
  readonly user?: string | undefined;
  /** The expected organisation of the key: the server refuses every call with a key of another organisation. */
  readonly orgId?: string | undefined;
  /** How often a read is repeated, 0 for never; default `TORPOR_READ_RETRIES`, else 5. */
  readonly retries?: number | undefined;
  /** The delay before each repetition; by default it doubles from 0.2 s to 2 s. */
  readonly backoff?: { readonly [K in keyof Backoff]?: Backoff[K] | undefined } | undefined;
  /** How long one attempt of a read waits for its response, and between two pieces of it. */
  readonly attemptTimeoutMs?: number | undefined;
  /** How long a stream of events may be silent before its connection counts as broken. */
  readonly silenceMs?: number | undefined;
  readonly fetch?: typeof fetch | undefined;
  /** The WebSocket class for terminals and for commands with a stream as stdin; default: the global one. */
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
  /** The header that carries the key. Requests to an app use `x-api-key`, because `authorization` is for the app. */
  readonly keyHeader?: 'authorization' | 'x-api-key' | undefined;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Sent unchanged. A stream can be sent only once, so a call with a stream is never repeated. */
  readonly body?: RequestInit['body'] | undefined;
  /** Sent as `Idempotency-Key`. */
  readonly idempotencyKey?: string | undefined;
  /** Repeats the call like a read, under the same idempotency key. No other mutation is ever repeated. */
  readonly repeatUnderKey?: boolean | undefined;
  /** Replaces the client's number of retries, if the call may be repeated at all. */
  readonly retries?: number | undefined;
  /** Whether the attempt includes the body, so that a truncated body is a failed attempt. */
  readonly whole?: boolean | ((response: Response) => boolean) | undefined;
  readonly signal?: AbortSignal | undefined;
}

export const DEFAULT_URL = 'http://127.0.0.1:7676';
/** A little longer than the server's limit for waking a sandbox. */
const ATTEMPT_TIMEOUT_MS = 130_000;
/** Three heartbeats of the server. */
const SILENCE_MS = 45_000;

/** Below such a path both the path and the query belong to the app. */
const PORT_PATH = /^\/v1\/sandboxes\/[^/]+\/ports\/\d/;

export class Transport {
  readonly url: string;
  readonly pace: Pace;
  readonly retries: number;
  readonly backoff: Backoff;
  readonly silenceMs: number;
  readonly apiKey: string | undefined;
  readonly webSocket: StandardSocketClass | undefined;
  readonly #options: TransportOptions;
  readonly #attemptTimeoutMs: number;

  constructor(options: TransportOptions = {}) {
    const env = options.env ?? environment();
    this.#options = options;
    this.url = (options.url ?? (env['TORPOR_URL'] || DEFAULT_URL)).replace(/\/+$/, '');
    this.apiKey = options.apiKey ?? (env['TORPOR_API_KEY'] || undefined);
    this.pace = options.pace ?? realPace;
    this.retries = budgetOf(options.retries, retriesOf(env['TORPOR_READ_RETRIES']));
    this.backoff = {
      baseMs: options.backoff?.baseMs ?? USUAL_BACKOFF.baseMs,
      capMs: options.backoff?.capMs ?? USUAL_BACKOFF.capMs,
    };
    this.silenceMs = options.silenceMs ?? SILENCE_MS;
    this.#attemptTimeoutMs = options.attemptTimeoutMs ?? ATTEMPT_TIMEOUT_MS;
    this.webSocket = options.webSocket ?? globalThis.WebSocket;
  }

  /** Resolves with the response, whatever its status. */
  send(call: Call): Promise<Response> {
    const { signal } = call;
    const retries = mayBeRepeated(call) ? budgetOf(call.retries, this.retries) : 0;
    return withRetries(() => this.#attempt(call), retries, this.pace, { signal, backoff: this.backoff });
  }

  /** Resolves with a successful response; throws the error of any other. */
  async ask(call: Call): Promise<Response> {
    const response = await this.send(call);
    if (response.ok) return response;
    throw await errorOf(response);
  }

  /** A key under which the server executes a request once, however often it is sent. */
  newIdempotencyKey(): string {
    const randomBytes = this.#options.randomBytes ?? ((n) => crypto.getRandomValues(new Uint8Array(n)));
    return [...randomBytes(16)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  }

  address(path: string, query: Query = {}): URL {
    const url = new URL(this.url + path);
    const { orgId } = this.#options;
    if (orgId !== undefined && !PORT_PATH.test(path)) url.searchParams.set('orgId', orgId);
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined) url.searchParams.set(name, String(value));
    }
    return url;
  }

  async #attempt(call: Call): Promise<Response> {
    const { whole = false } = call;
    // Only reads have a timeout: the server may complete a mutation after the client has given up on it.
    const timeoutMs = isRead(call.method) ? this.#attemptTimeoutMs : undefined;
    const response = await this.#fetchWithin(call, timeoutMs);
    if (typeof whole === 'function' ? whole(response) : whole) await awaitBody(response, timeoutMs);
    return response;
  }

  async #fetchWithin(call: Call, ms: number | undefined): Promise<Response> {
    const request = this.#request(call);
    const doFetch = this.#options.fetch ?? fetch;
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

  #request(call: Call): Request {
    const body = call.json === undefined ? call.body : JSON.stringify(call.json);
    return new Request(this.address(call.path, call.query), {
      method: call.method.toUpperCase(),
      headers: this.#headersFor(call),
      // Following a redirect would send the key elsewhere, and turn a mutation into a read.
      redirect: 'manual',
      ...(body === undefined ? {} : { body }),
      ...(isOneShot(body) ? { duplex: 'half' } : {}),
      ...(call.signal === undefined ? {} : { signal: call.signal }),
    });
  }

  #headersFor({ headers: given, keyHeader = 'authorization', idempotencyKey, json }: Call): Headers {
    const headers = new Headers(given);
    const { apiKey } = this;
    if (apiKey !== undefined) headers.set(keyHeader, keyHeader === 'x-api-key' ? apiKey : `Bearer ${apiKey}`);
    if (this.#options.user !== undefined) headers.set('torpor-user', this.#options.user);
    if (idempotencyKey !== undefined) headers.set('idempotency-key', idempotencyKey);
    if (json !== undefined) headers.set('content-type', 'application/json');
    return headers;
  }
}

/** Browsers have no `process`, and so their types do not declare it. */
function environment(): Environment {
  return (globalThis as { process?: { env?: Environment } }).process?.env ?? {};
}

/** No response can prove that a mutation was not executed: an app behind the gateway can forge any response. */
function mayBeRepeated({ method, body, idempotencyKey, repeatUnderKey }: Call): boolean {
  if (isOneShot(body)) return false;
  return isRead(method) || (repeatUnderKey === true && idempotencyKey !== undefined);
}

/** Whether the body may not give the same bytes a second time: streams, and unknown kinds. */
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

/** Reads a copy of the body to its end; the response keeps its body for the caller. */
async function awaitBody(response: Response, timeoutMs: number | undefined): Promise<void> {
  const { body } = response.clone();
  if (body === null) return;
  const reader = (timeoutMs === undefined ? body : withIdleTimeout(body, timeoutMs)).getReader();
  try {
    while (!(await reader.read()).done);
  } catch (thrown) {
    // The connection is closed only when the original body is cancelled too.
    response.body?.cancel().catch(() => {});
    throw thrown;
  }
}

async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text();
  return errorOfAnswer(response.status, response.headers.get('x-request-id'), parsed(text));
}

/**
 * The gateway's error if the gateway itself sent this response, or undefined if the app did, whatever its status. The
 * response keeps its body.
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

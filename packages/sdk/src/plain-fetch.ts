/**
 * `fetch` without hidden retries. Node's `fetch` (undici) repeats a request, also a mutation, after a 421, and drops the
 * response of a 407. This file hides both statuses from undici and restores them for the caller. Node's WebSocket uses
 * the same `fetch` for its handshake.
 */

/** The part of undici that this file uses: the dispatcher sends requests, the handler receives responses. */
interface Dispatcher {
  readonly isMockActive?: boolean;
  dispatch(options: unknown, handler: Handler): boolean;
}

/** Undici 6 and 7 call `onHeaders`, undici 8 calls `onResponseStart`. */
interface Handler {
  onHeaders?(status: number, ...rest: unknown[]): unknown;
  onResponseStart?(controller: unknown, status: number, ...rest: unknown[]): unknown;
}

/** The statuses that undici acts on by itself. */
const HIDDEN_STATUSES: ReadonlySet<number> = new Set([407, 421]);
/** A status without a meaning for `fetch`. */
const STAND_IN = 599;

/** Sends the request exactly once, and resolves with the response as the server sent it. */
export async function plainFetch(
  doFetch: typeof fetch,
  request: Request,
  init: RequestInit = {},
): Promise<Response> {
  const dispatcher = globalDispatcher();
  if (dispatcher === undefined) return doFetch(request, init);
  let hidden: number | undefined;
  const hide = (status: number) => {
    hidden = HIDDEN_STATUSES.has(status) ? status : undefined;
    return hidden === undefined ? status : STAND_IN;
  };
  const response = await doFetch(request, {
    ...init,
    dispatcher: withHiddenStatuses(dispatcher, hide),
  } as RequestInit);
  if (hidden === undefined || response.status !== STAND_IN) return response;
  const { statusText, headers } = response;
  return new Response(response.body, { status: hidden, statusText, headers });
}

/** The second argument for Node's own WebSocket. Other implementations take the protocols only. */
export function plainSocketOptions(protocols: string[]): string[] {
  const dispatcher = globalDispatcher();
  if (dispatcher === undefined) return protocols;
  const hide = (status: number) => (HIDDEN_STATUSES.has(status) ? STAND_IN : status);
  return { protocols, dispatcher: withHiddenStatuses(dispatcher, hide) } as unknown as string[];
}

/**
 * The dispatcher that `fetch` uses. A program may have replaced it, for example by a proxy. Undefined outside of Node:
 * a page cannot change how its browser treats a 421.
 */
function globalDispatcher(): Dispatcher | undefined {
  const { process } = globalThis as { process?: { versions?: { undici?: string } } };
  const major = Number.parseInt(process?.versions?.undici ?? '', 10);
  if (Number.isNaN(major)) return undefined;
  const name = Symbol.for(`undici.globalDispatcher.${major < 8 ? 1 : 2}`);
  return (globalThis as { [name]?: Dispatcher })[name];
}

function withHiddenStatuses(inner: Dispatcher, hide: (status: number) => number): Dispatcher {
  return {
    get isMockActive() {
      return inner.isMockActive ?? false;
    },
    dispatch: (options, handler) => inner.dispatch(options, withReplacedStatus(handler, hide)),
  };
}

/** The same handler, called with the replaced status. */
function withReplacedStatus(handler: Handler, hide: (status: number) => number): Handler {
  const { onHeaders, onResponseStart } = handler;
  const wrapped: Handler = Object.create(handler);
  if (onHeaders !== undefined) {
    wrapped.onHeaders = function (this: Handler, status, ...rest) {
      return onHeaders.call(this, hide(status), ...rest);
    };
  }
  if (onResponseStart !== undefined) {
    wrapped.onResponseStart = function (this: Handler, controller, status, ...rest) {
      return onResponseStart.call(this, controller, hide(status), ...rest);
    };
  }
  return wrapped;
}

/**
 * `fetch` with nothing done behind the caller's back. Node's own (undici's) sends a request a second time when it is
 * answered with 421, mutations too, and throws a 407 away. Both are hidden from it here and shown to the caller.
 * Node's WebSocket asks for its connection by the same `fetch`.
 */

/** As much of undici as is used: what a `fetch` sends its requests by, and what hears their answers. */
interface Dispatcher {
  readonly isMockActive?: boolean;
  dispatch(options: unknown, handler: Handler): boolean;
}

/** Undici 6 and 7 call the first, undici 8 the second. */
interface Handler {
  onHeaders?(status: number, ...rest: unknown[]): unknown;
  onResponseStart?(controller: unknown, status: number, ...rest: unknown[]): unknown;
}

const ACTED_ON: ReadonlySet<number> = new Set([407, 421]);
/** A status that means nothing to `fetch`. */
const STAND_IN = 599;

/** One request on the wire, and its answer as it came. */
export async function plainFetch(
  doFetch: typeof fetch,
  request: Request,
  init: RequestInit = {},
): Promise<Response> {
  const dispatcher = globalDispatcher();
  if (dispatcher === undefined) return doFetch(request, init);
  let hidden: number | undefined;
  const hide = (status: number) => {
    hidden = ACTED_ON.has(status) ? status : undefined;
    return hidden === undefined ? status : STAND_IN;
  };
  const response = await doFetch(request, { ...init, dispatcher: hiding(dispatcher, hide) } as RequestInit);
  if (hidden === undefined || response.status !== STAND_IN) return response;
  const { statusText, headers } = response;
  return new Response(response.body, { status: hidden, statusText, headers });
}

/** What to hand Node's own WebSocket as its second argument; any other takes the protocols alone. */
export function plainSocketOptions(protocols: string[]): string[] {
  const dispatcher = globalDispatcher();
  if (dispatcher === undefined) return protocols;
  const hide = (status: number) => (ACTED_ON.has(status) ? STAND_IN : status);
  return { protocols, dispatcher: hiding(dispatcher, hide) } as unknown as string[];
}

/**
 * The one that `fetch` uses, which a program may have replaced, by a proxy for example. Undefined outside of Node:
 * how a browser treats a 421 cannot be changed from a page.
 */
function globalDispatcher(): Dispatcher | undefined {
  const { process } = globalThis as { process?: { versions?: { undici?: string } } };
  const major = Number.parseInt(process?.versions?.undici ?? '', 10);
  if (Number.isNaN(major)) return undefined;
  const name = Symbol.for(`undici.globalDispatcher.${major < 8 ? 1 : 2}`);
  return (globalThis as { [name]?: Dispatcher })[name];
}

function hiding(inner: Dispatcher, hide: (status: number) => number): Dispatcher {
  return {
    get isMockActive() {
      return inner.isMockActive ?? false;
    },
    dispatch: (options, handler) => inner.dispatch(options, deafened(handler, hide)),
  };
}

/** The same handler, told another status. */
function deafened(handler: Handler, hide: (status: number) => number): Handler {
  const { onHeaders, onResponseStart } = handler;
  const heard: Handler = Object.create(handler);
  if (onHeaders !== undefined) {
    heard.onHeaders = function (this: Handler, status, ...rest) {
      return onHeaders.call(this, hide(status), ...rest);
    };
  }
  if (onResponseStart !== undefined) {
    heard.onResponseStart = function (this: Handler, controller, status, ...rest) {
      return onResponseStart.call(this, controller, hide(status), ...rest);
    };
  }
  return heard;
}

/**
 * Tells a broken connection from everything else that can be thrown, by error code and never by text:
 * the text of an error may quote what a server said.
 */

/** Of Node, and of the HTTP client inside its `fetch`. */
const CODES: ReadonlySet<string> = new Set([
  'ECONNRESET',
  'ECONNREFUSED',
  'ECONNABORTED',
  'ETIMEDOUT',
  'EPIPE',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EAI_AGAIN',
  'ERR_HTTP2_STREAM_ERROR',
  'ERR_HTTP2_GOAWAY_SESSION',
  'ERR_HTTP2_SESSION_ERROR',
  'ERR_STREAM_PREMATURE_CLOSE',
  'UND_ERR_SOCKET',
  'UND_ERR_CONNECT_TIMEOUT',
  'UND_ERR_HEADERS_TIMEOUT',
  'UND_ERR_BODY_TIMEOUT',
]);

const DEPTH = 5;

/** What an attempt is cut off with when it waits too long for an answer. */
export class AttemptTimeout extends Error {
  override readonly name = 'AttemptTimeout';
  readonly code = 'ETIMEDOUT';

  constructor(ms: number) {
    super(`No answer within ${ms} ms.`);
  }
}

/**
 * True for resets, refusals, truncated bodies and timeouts. An error that carries an HTTP status was
 * answered, so it never is one, whatever stands in it or under it (R60).
 */
export function isTransportFault(thrown: unknown): boolean {
  const chain = causes(thrown);
  if (chain.some(carriesStatus)) return false;
  return chain.some((error) => CODES.has(String(error['code'] ?? ''))) || isBrowserNetworkError(thrown);
}

function causes(thrown: unknown): Record<string, unknown>[] {
  const chain: Record<string, unknown>[] = [];
  let next = thrown;
  while (typeof next === 'object' && next !== null && chain.length < DEPTH) {
    const error = next as Record<string, unknown>;
    chain.push(error);
    next = error['cause'];
  }
  return chain;
}

function carriesStatus(error: Record<string, unknown>): boolean {
  const response = error['response'] as { status?: unknown } | null | undefined;
  return [error['status'], error['statusCode'], response?.status].some(
    (status) => typeof status === 'number',
  );
}

/** Browsers say no more than this of a connection; Node always gives a cause. */
function isBrowserNetworkError(thrown: unknown): boolean {
  const inNode = 'process' in globalThis;
  return !inNode && thrown instanceof TypeError && thrown.cause === undefined;
}

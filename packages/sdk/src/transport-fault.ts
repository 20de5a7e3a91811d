/**
 * Distinguishes broken connections from all other errors, by error code and never by message: a message may quote text
 * from the server.
 */

/** Error codes of Node, and of the HTTP client in its `fetch`. */
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

/** How many causes of an error are examined. */
const MAX_DEPTH = 5;

/** An attempt waited too long for its response. */
export class AttemptTimeout extends Error {
  override readonly name = 'AttemptTimeout';
  readonly code = 'ETIMEDOUT';

  constructor(ms: number) {
    super(`No answer within ${ms} ms.`);
  }
}

/**
 * True for resets, refused connections, truncated bodies and timeouts. False for every error that carries an HTTP status,
 * whatever its code or cause: the server has answered (R60).
 */
export function isTransportFault(thrown: unknown): boolean {
  const chain = causes(thrown);
  if (chain.some(carriesStatus)) return false;
  return chain.some((error) => CODES.has(String(error['code'] ?? ''))) || isBrowserNetworkError(thrown);
}

function causes(thrown: unknown): Record<string, unknown>[] {
  const chain: Record<string, unknown>[] = [];
  let next = thrown;
  while (typeof next === 'object' && next !== null && chain.length < MAX_DEPTH) {
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

/** Browsers throw a bare `TypeError` for a broken connection; Node always gives a cause. */
function isBrowserNetworkError(thrown: unknown): boolean {
  const inNode = 'process' in globalThis;
  return !inNode && thrown instanceof TypeError && thrown.cause === undefined;
}

/** Headers that concern one connection only and are never passed on (RFC 9110, 7.6.1). */

export const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'proxy-authorization',
  'te',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
]);

/** The headers that `Connection` names are hop-by-hop too. The callers ignore it for framing and routing headers. */
export function namedByConnection(rawHeaders: readonly string[]): ReadonlySet<string> {
  let named: Set<string> | undefined;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    if ((rawHeaders[i] as string).toLowerCase() !== 'connection') continue;
    named ??= new Set();
    for (const name of (rawHeaders[i + 1] as string).split(',')) named.add(name.trim().toLowerCase());
  }
  return named ?? NONE;
}

const NONE: ReadonlySet<string> = new Set();

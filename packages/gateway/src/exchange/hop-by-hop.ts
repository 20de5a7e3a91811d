/** Headers that are between two neighbours only, and never go further. */

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

/** Those that `Connection` names are too. Names that framing and routing depend on are never up to the sender. */
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

/** The heads of a request and of its response on the way between two nodes: as they are, without hop-by-hop headers. */
import { HOP_BY_HOP, namedByConnection } from '../exchange/hop-by-hop.ts';
import { HOP_HEADER, HOP_RESULT_HEADER } from './hop-signature.ts';

export interface HopRequestFacts {
  readonly method: string;
  readonly target: string;
  readonly host: string;
  readonly rawHeaders: readonly string[];
  readonly signature: string;
  readonly upgrade: boolean;
  readonly expectsContinue: boolean;
  /** The length of the body, if it is known. */
  readonly contentLength: string | undefined;
}

/** Headers that this node writes itself. The header of a hop comes from nodes only. */
const NOT_COPIED: ReadonlySet<string> = new Set([
  ...HOP_BY_HOP,
  'host',
  'content-length',
  'expect',
  'cookie',
  HOP_HEADER,
  HOP_RESULT_HEADER,
]);

/** Every line ends with a line break. The caller adds the framing header of the body and the empty line. */
export function hopRequestHead(facts: HopRequestFacts): string {
  const { rawHeaders, contentLength } = facts;
  const named = namedByConnection(rawHeaders);
  let head = `${facts.method} ${facts.target} HTTP/1.1\r\nHost: ${facts.host}\r\n`;
  let cookies = '';
  let wantsTrailers = false;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const given = rawHeaders[i] as string;
    const name = given.toLowerCase();
    const value = rawHeaders[i + 1] as string;
    // HTTP/2 may send cookies in pieces.
    if (name === 'cookie') cookies += cookies === '' ? value : `; ${value}`;
    else if (name === 'te') wantsTrailers ||= /(?:^|,)\s*trailers\b/i.test(value);
    else if (!NOT_COPIED.has(name) && !named.has(name) && !name.startsWith(':'))
      head += `${given}: ${value}\r\n`;
  }
  if (cookies !== '') head += `Cookie: ${cookies}\r\n`;
  if (facts.upgrade) head += 'Connection: Upgrade\r\nUpgrade: websocket\r\n';
  else if (wantsTrailers) head += 'Connection: TE\r\nTE: trailers\r\n';
  if (facts.expectsContinue) head += 'Expect: 100-continue\r\n';
  if (contentLength !== undefined) head += `Content-Length: ${contentLength}\r\n`;
  return `${head}Torpor-Hop: ${facts.signature}\r\n`;
}

/** Names and values alternate. The other node has decided what an app may send. */
export function hopResponseHeaders(raw: readonly string[], isChunked: boolean): string[] {
  const named = namedByConnection(raw);
  const headers: string[] = [];
  for (let i = 0; i < raw.length; i += 2) {
    const given = raw[i] as string;
    const name = given.toLowerCase();
    if (HOP_BY_HOP.has(name) || named.has(name) || name === HOP_RESULT_HEADER) continue;
    if (isChunked ? name === 'content-length' : name === 'trailer') continue;
    headers.push(given, raw[i + 1] as string);
  }
  return headers;
}

/** What a response says about a request that its node did not take. */
export function hopResultOf({ headers }: { readonly headers: readonly string[] }): string | undefined {
  for (let i = 0; i < headers.length; i += 2)
    if ((headers[i] as string).toLowerCase() === HOP_RESULT_HEADER) return headers[i + 1];
  return undefined;
}

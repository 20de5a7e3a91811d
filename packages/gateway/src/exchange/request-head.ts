/**
 * The head of a request as the app in the sandbox gets it: without what is between us and the client, without
 * anything that belongs to Torpor, and with the truth about where it comes from.
 */
import { KEY_PROTOCOL_PREFIX } from '@torpor/protocol';
import { withoutPreviewCookies } from '../access/preview-cookie.ts';
import { HOP_BY_HOP, namedByConnection } from './hop-by-hop.ts';

export interface Origin {
  /** The host as the client named it. */
  readonly host: string;
  readonly scheme: 'http' | 'https';
  readonly remoteAddress: string;
  readonly localPort: number;
}

export interface RequestFacts {
  readonly method: string;
  readonly path: string;
  /** The name under which the app is to know itself. */
  readonly host: string;
  readonly rawHeaders: readonly string[];
  readonly origin: Origin;
  /** Further names that are not passed on, lower-cased: those in which a key of ours came. */
  readonly withheld: ReadonlySet<string>;
  readonly upgrade: boolean;
  readonly expectsContinue: boolean;
  /** The length of a body that has one. */
  readonly contentLength: string | undefined;
}

/** Ours to write, or Torpor's own, or claims about where the request comes from that we do not repeat. */
const WRITTEN_BY_US: ReadonlySet<string> = new Set([
  'host',
  'content-length',
  'expect',
  'cookie',
  'sec-websocket-protocol',
  'forwarded',
  'x-real-ip',
  'e2b-sandbox-id',
  'e2b-sandbox-port',
  'e2b-traffic-access-token',
]);

/** Every line ends with a line break; what ends the head is up to the framing of the body. */
export function requestHead(facts: RequestFacts, agentToken: string | undefined): string {
  const { rawHeaders, origin, withheld } = facts;
  const named = namedByConnection(rawHeaders);
  let head = `${facts.method} ${facts.path} HTTP/1.1\r\nHost: ${facts.host}\r\n`;
  let cookies = '';
  let protocols = '';
  let wantsTrailers = false;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const given = rawHeaders[i] as string;
    const name = given.toLowerCase();
    const value = rawHeaders[i + 1] as string;
    if (withheld.has(name)) continue;
    if (name === 'cookie') cookies += cookies === '' ? value : `; ${value}`;
    else if (name === 'sec-websocket-protocol') protocols += protocols === '' ? value : `, ${value}`;
    else if (name === 'te') wantsTrailers ||= /(?:^|,)\s*trailers\b/i.test(value);
    if (HOP_BY_HOP.has(name) || WRITTEN_BY_US.has(name) || isOurs(name)) continue;
    if (named.has(name)) continue;
    head += `${given}: ${value}\r\n`;
  }
  head += ownLines(facts, wantsTrailers, cookies, protocols);
  if (agentToken !== undefined) head += `X-Access-Token: ${agentToken}\r\n`;
  return `${head}${forwarded(origin)}`;
}

/** Names that begin so are Torpor's, HTTP/2's, or a claim about the client's address. */
function isOurs(name: string): boolean {
  return name.startsWith('torpor-') || name.startsWith('x-forwarded-') || name.startsWith(':');
}

function ownLines(facts: RequestFacts, wantsTrailers: boolean, cookies: string, protocols: string): string {
  let lines = '';
  const kept = cookies === '' ? '' : withoutPreviewCookies(cookies);
  if (kept !== '') lines += `Cookie: ${kept}\r\n`;
  if (facts.upgrade) {
    const offered = protocols
      .split(',')
      .map((text) => text.trim())
      .filter((text) => text !== '' && !text.startsWith(KEY_PROTOCOL_PREFIX));
    if (offered.length > 0) lines += `Sec-WebSocket-Protocol: ${offered.join(', ')}\r\n`;
    return `${lines}Connection: Upgrade\r\nUpgrade: websocket\r\n`;
  }
  if (wantsTrailers) lines += 'Connection: TE\r\nTE: trailers\r\n';
  if (facts.expectsContinue) lines += 'Expect: 100-continue\r\n';
  if (facts.contentLength !== undefined) lines += `Content-Length: ${facts.contentLength}\r\n`;
  return lines;
}

function forwarded({ host, scheme, remoteAddress, localPort }: Origin): string {
  const plain = remoteAddress.startsWith('::ffff:') ? remoteAddress.slice(7) : remoteAddress;
  return (
    `X-Forwarded-For: ${plain}\r\nX-Forwarded-Proto: ${scheme}\r\n` +
    `X-Forwarded-Host: ${host}\r\nX-Forwarded-Port: ${localPort}\r\n`
  );
}

/**
 * The head of a request as the app in the sandbox gets it: without hop-by-hop headers, without credentials and headers
 * of Torpor's, and with forwarding headers that the gateway itself has verified.
 */
import { KEY_PROTOCOL_PREFIX } from '@torpor/protocol';
import { withoutOwnCookies } from '../access/preview-cookie.ts';
import { HOP_BY_HOP, namedByConnection } from './hop-by-hop.ts';

export interface Origin {
  /** The host in the client's request. */
  readonly host: string;
  readonly scheme: 'http' | 'https';
  readonly remoteAddress: string;
  readonly localPort: number;
}

export interface RequestFacts {
  readonly method: string;
  readonly path: string;
  /** The `Host` that the app gets. */
  readonly host: string;
  readonly rawHeaders: readonly string[];
  readonly origin: Origin;
  /** Further headers that are not passed on, in lower case: those that carried a key or token of Torpor's. */
  readonly withheld: ReadonlySet<string>;
  readonly upgrade: boolean;
  readonly expectsContinue: boolean;
  /** The length of the body, if it is known. */
  readonly contentLength: string | undefined;
}

/** Headers that the gateway writes itself, that are Torpor's, or that claim an unverified client address. */
const NOT_COPIED: ReadonlySet<string> = new Set([
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

/** Every line ends with a line break. The caller adds the framing header of the body and the empty line. */
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
    if (HOP_BY_HOP.has(name) || NOT_COPIED.has(name) || hasReservedPrefix(name)) continue;
    if (named.has(name)) continue;
    head += `${given}: ${value}\r\n`;
  }
  head += gatewayLines(facts, wantsTrailers, cookies, protocols);
  if (agentToken !== undefined) head += `X-Access-Token: ${agentToken}\r\n`;
  return `${head}${forwarded(origin)}`;
}

/** Prefixes of Torpor's headers, of HTTP/2's pseudo-headers, and of claims about the client's address. */
function hasReservedPrefix(name: string): boolean {
  return name.startsWith('torpor-') || name.startsWith('x-forwarded-') || name.startsWith(':');
}

function gatewayLines(
  facts: RequestFacts,
  wantsTrailers: boolean,
  cookies: string,
  protocols: string,
): string {
  let lines = '';
  const kept = cookies === '' ? '' : withoutOwnCookies(cookies);
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

/** The headers of a response as the client gets them. An app may affect its own origin, but no other sandbox's. */
import { ANSWERED_BY_HEADER } from '@torpor/protocol';
import { isOwnCookie } from '../access/preview-cookie.ts';
import { HOP_RESULT_HEADER } from '../hop/hop-signature.ts';
import { HOP_BY_HOP, namedByConnection } from './hop-by-hop.ts';

export interface ResponseHeaderRules {
  /** The host of the client's request, in lower case and without a port. */
  readonly host: string;
  /** Whether the response has the same origin as the API and other sandboxes' responses. */
  readonly sharesOrigin: boolean;
  /** Whether the app may set no cookie at all. */
  readonly dropsCookies: boolean;
  /** Whether the body is sent in chunks, which may have trailers. */
  readonly isChunked: boolean;
}

/** Headers that concern a whole origin. They are dropped when the app is served from the API's own origin. */
const FOR_OWN_ORIGIN_ONLY: ReadonlySet<string> = new Set([
  'clear-site-data',
  'service-worker-allowed',
  'strict-transport-security',
  'public-key-pins',
  'nel',
  'report-to',
  'reporting-endpoints',
]);

/** Hop-by-hop headers, and headers that only the gateway may send. */
const NEVER_PASSED: ReadonlySet<string> = new Set([
  ...HOP_BY_HOP,
  'alt-svc',
  ANSWERED_BY_HEADER.toLowerCase(),
  // With it an app could make another node send the request again.
  HOP_RESULT_HEADER,
]);

/** Names and values alternate, in the order and case in which the app sent them. */
export function responseHeaders(raw: readonly string[], rules: ResponseHeaderRules): string[] {
  const named = namedByConnection(raw);
  const headers: string[] = [];
  let hasLength = false;
  for (let i = 0; i < raw.length; i += 2) {
    const given = raw[i] as string;
    const name = given.toLowerCase();
    const value = raw[i + 1] as string;
    if (NEVER_PASSED.has(name) || named.has(name)) continue;
    if (name === 'trailer' && !rules.isChunked) continue;
    if (name === 'content-length') {
      if (rules.isChunked || hasLength) continue;
      hasLength = true;
    }
    if (name === 'set-cookie' && !maySetCookie(value, rules)) continue;
    if (rules.sharesOrigin && FOR_OWN_ORIGIN_ONLY.has(name)) continue;
    headers.push(given, value);
  }
  // In addition to a policy of the app: browsers enforce all of them.
  if (rules.sharesOrigin) headers.push('Content-Security-Policy', 'sandbox');
  return headers;
}

function maySetCookie(value: string, { host, dropsCookies }: ResponseHeaderRules): boolean {
  if (dropsCookies || isOwnCookie(value)) return false;
  const domains = [...value.matchAll(/;\s*domain\s*=\s*"?\.?([^;"\s]*)/gi)].map((found) => found[1] ?? '');
  // A cookie for a parent domain would be sent to other sandboxes too.
  return domains.every((domain) => domain === '' || domain.toLowerCase() === host);
}

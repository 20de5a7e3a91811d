/** The headers of an answer as the client gets them: what an app may say to its visitors, and not to its neighbours'. */
import { ANSWERED_BY_HEADER } from '@torpor/protocol';
import { setsPreviewCookie } from '../access/preview-cookie.ts';
import { HOP_BY_HOP, namedByConnection } from './hop-by-hop.ts';

export interface ResponseHeaderRules {
  /** The host that the client asked, lower-cased and without a port. */
  readonly host: string;
  /** The answer shares its origin with the API, and with the answers of other sandboxes. */
  readonly sharesOrigin: boolean;
  /** Whether no cookie at all may be set. */
  readonly dropsCookies: boolean;
  /** Whether the body will be sent in chunks, which may have trailers. */
  readonly isChunked: boolean;
}

/** Where a page of an app could otherwise reach beyond itself when it is served from the API's own origin. */
const FOR_OWN_ORIGIN_ONLY: ReadonlySet<string> = new Set([
  'clear-site-data',
  'service-worker-allowed',
  'strict-transport-security',
  'public-key-pins',
  'nel',
  'report-to',
  'reporting-endpoints',
]);

/** Between neighbours only, or the gateway's to say and not an app's. */
const NEVER_PASSED: ReadonlySet<string> = new Set([
  ...HOP_BY_HOP,
  'alt-svc',
  ANSWERED_BY_HEADER.toLowerCase(),
]);

/** Names and values take turns, in the order and the case in which the app sent them. */
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
  // A policy of its own: the browser obeys all of them.
  if (rules.sharesOrigin) headers.push('Content-Security-Policy', 'sandbox');
  return headers;
}

function maySetCookie(value: string, { host, dropsCookies }: ResponseHeaderRules): boolean {
  if (dropsCookies || setsPreviewCookie(value)) return false;
  const domains = [...value.matchAll(/;\s*domain\s*=\s*"?\.?([^;"\s]*)/gi)].map((found) => found[1] ?? '');
  // For its own host it may; anything shorter belongs to its neighbours too.
  return domains.every((domain) => domain === '' || domain.toLowerCase() === host);
}

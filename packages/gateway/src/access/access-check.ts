/** Decides whether a request may reach a port of a sandbox. */
import type { IncomingHttpHeaders } from 'node:http';
import type { Clock } from '@torpor/engine';
import { type SandboxId, TorporError } from '@torpor/protocol';
import { AGENT_PORT, type PreviewRoute } from '../route/route.ts';
import type { SandboxInfo } from '../sandbox-directory.ts';
import { previewCookies } from './preview-cookie.ts';
import { type CheckSignature, signedFileIn } from './signed-file.ts';
import type { Tokens } from './tokens.ts';

export interface AccessRequest {
  readonly method: string;
  readonly headers: IncomingHttpHeaders;
  /** The host as the client named it. */
  readonly host: string;
  readonly scheme: 'http' | 'https';
}

export type AccessDecision =
  | { readonly is: 'allowed' }
  /** A one-time link was used: the browser gets a cookie and is redirected to the address without the link's token. */
  | { readonly is: 'link_used'; readonly location: string }
  | { readonly is: 'denied'; readonly error: TorporError };

const ALLOWED: AccessDecision = { is: 'allowed' };
export const LINK_PARAMETER = 'torpor_token';
const TOKEN_HEADERS = ['torpor-preview-token', 'e2b-traffic-access-token'] as const;

export interface AccessCheckParts {
  readonly tokens: Tokens;
  readonly checkSignature: CheckSignature;
  readonly clock: Clock;
}

export async function checkAccess(
  parts: AccessCheckParts,
  route: PreviewRoute,
  sandbox: SandboxInfo,
  request: AccessRequest,
): Promise<AccessDecision> {
  const { tokens } = parts;
  if (route.port === AGENT_PORT) return checkAgentAccess(parts, route, request);
  // The path form needs a key of the organisation, which allows more than a preview token.
  if (sandbox.preview === 'public' || route.by === 'path') return ALLOWED;
  for (const name of TOKEN_HEADERS) {
    const given = request.headers[name];
    if (typeof given === 'string' && tokens.isPreviewToken(sandbox.id, given)) return ALLOWED;
  }
  const hasCookie =
    route.by === 'host' &&
    isFromOwnOrigin(request) &&
    previewCookies(request.headers.cookie).some((cookie) => tokens.isCookie(sandbox.id, cookie));
  const link = route.by === 'host' && request.method === 'GET' ? linkIn(route.path) : undefined;
  if (link !== undefined && (hasCookie || (await tokens.useLink(sandbox.id, link.token)))) {
    return { is: 'link_used', location: link.location };
  }
  return hasCookie ? ALLOWED : { is: 'denied', error: previewIsPrivate(sandbox.id, link !== undefined) };
}

/**
 * The agent's calls that E2B's clients use, and `/turns`, through which another Torpor delivers turns to a sandbox of
 * this server: a turn starts nothing that a process call could not start. Only the server itself sets the agent up and
 * asks it about ports.
 */
const AGENT_PATHS =
  /^\/(?:health|files|files\/compose|metrics|envs|turns|process\.Process\/\w+|filesystem\.Filesystem\/\w+)(?:\?|$)/;

function checkAgentAccess(
  { tokens, checkSignature, clock }: AccessCheckParts,
  { sandboxId, path }: PreviewRoute,
  request: AccessRequest,
): AccessDecision {
  if (isAgentHealth(request.method, path)) return ALLOWED;
  if (!AGENT_PATHS.test(path)) {
    return deny(new TorporError('not_found', 'The agent has no such path.', { sandboxId }));
  }
  const given = request.headers['x-access-token'];
  if (typeof given === 'string' && tokens.isAccessToken(sandboxId, given)) return ALLOWED;
  const signed = given === undefined ? signedFileIn(request.method, path) : undefined;
  if (signed !== undefined) {
    const { file, signature } = signed;
    const why = checkSignature(file, signature, tokens.accessToken(sandboxId), clock.now() / 1_000);
    return why === undefined ? ALLOWED : deny(new TorporError('unauthenticated', why, { sandboxId }));
  }
  return deny(
    new TorporError('unauthenticated', 'The access token of the sandbox is missing or wrong.', {
      sandboxId,
      hint: 'Send it in X-Access-Token.',
    }),
  );
}

/** The health question asks whether a sandbox runs, and so must not wake it. */
export function isAgentHealth(method: string, path: string): boolean {
  return (method === 'GET' || method === 'HEAD') && /^\/health(?:\?|$)/.test(path);
}

function deny(error: TorporError): AccessDecision {
  return { is: 'denied', error };
}

function previewIsPrivate(sandboxId: SandboxId, hadLink: boolean): TorporError {
  const message = hadLink
    ? 'This link was used before, or has expired.'
    : 'This preview is private, and the request has no access to it.';
  return new TorporError('forbidden', message, {
    sandboxId,
    hint: 'Ask the owner of the sandbox for a link (torpor ports <sandbox> --link <port>).',
    details: { dispatched: false },
  });
}

/**
 * A browser sends the cookie with every request, whichever page caused it. Pages of other sandboxes are on the same
 * site, so `SameSite` does not keep them out. The browser's `Origin` and `Sec-Fetch-*` headers tell where a request
 * comes from.
 */
function isFromOwnOrigin({ method, headers, host, scheme }: AccessRequest): boolean {
  const { origin } = headers;
  if (origin !== undefined && origin !== `${scheme}://${host}`) return false;
  const site = headers['sec-fetch-site'];
  if (site === undefined || site === 'same-origin' || site === 'none') return true;
  return method === 'GET' && headers['sec-fetch-mode'] === 'navigate';
}

function linkIn(path: string): { readonly token: string; readonly location: string } | undefined {
  const at = path.indexOf('?');
  if (at < 0) return undefined;
  const query = path.slice(at + 1).split('&');
  const mark = `${LINK_PARAMETER}=`;
  const token = query.find((pair) => pair.startsWith(mark))?.slice(mark.length);
  if (token === undefined) return undefined;
  const rest = query.filter((pair) => !pair.startsWith(mark)).join('&');
  // A location that begins with two slashes would name another host.
  const own = path.slice(0, at).replace(/^\/[/\\]+/, '/');
  return { token, location: rest === '' ? own : `${own}?${rest}` };
}

/** Who may go to which port of a sandbox, and which of a request's headers are not the app's to see. */
import type { IncomingHttpHeaders } from 'node:http';
import type { Clock } from '@torpor/engine';
import { type SandboxId, TorporError } from '@torpor/protocol';
import { AGENT_PORT, type PreviewRoute } from '../route/route.ts';
import type { SandboxFacts } from '../sandboxes.ts';
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
  | { readonly is: 'admitted' }
  /** A one-time link was used: the browser gets a cookie and comes again without it. */
  | { readonly is: 'linked'; readonly location: string }
  | { readonly is: 'refused'; readonly error: TorporError };

const ADMITTED: AccessDecision = { is: 'admitted' };
export const LINK_PARAMETER = 'torpor_token';
const TOKEN_HEADERS = ['torpor-preview-token', 'e2b-traffic-access-token'] as const;

export interface AccessCheckParts {
  readonly tokens: Tokens;
  readonly checkSignature: CheckSignature;
  readonly clock: Clock;
}

export function checkAccess(
  parts: AccessCheckParts,
  route: PreviewRoute,
  sandbox: SandboxFacts,
  visitor: AccessRequest,
): AccessDecision {
  const { tokens } = parts;
  if (route.port === AGENT_PORT) return admitToAgent(parts, route, visitor);
  // Whoever has a key of the organisation has more than a preview already.
  if (sandbox.preview === 'public' || route.by === 'path') return ADMITTED;
  for (const name of TOKEN_HEADERS) {
    const given = visitor.headers[name];
    if (typeof given === 'string' && tokens.isPreviewToken(sandbox.id, given)) return ADMITTED;
  }
  const hasCookie =
    route.by === 'host' &&
    isFromOwnOrigin(visitor) &&
    previewCookies(visitor.headers.cookie).some((cookie) => tokens.isCookie(sandbox.id, cookie));
  const link = route.by === 'host' && visitor.method === 'GET' ? linkIn(route.path) : undefined;
  if (link !== undefined && (hasCookie || tokens.useLink(sandbox.id, link.token))) {
    return { is: 'linked', location: link.location };
  }
  return hasCookie ? ADMITTED : { is: 'refused', error: isPrivate(sandbox.id, link !== undefined) };
}

/**
 * Of the agent's calls, those that E2B's clients know, and the turns that another Torpor delivers to a sandbox that
 * lives here: they start what a process may start anyway. Setting the agent up and asking it about ports is the server's.
 */
const AGENT_PATHS =
  /^\/(?:health|files|files\/compose|metrics|envs|turns|process\.Process\/\w+|filesystem\.Filesystem\/\w+)(?:\?|$)/;

function admitToAgent(
  { tokens, checkSignature, clock }: AccessCheckParts,
  { sandboxId, path }: PreviewRoute,
  visitor: AccessRequest,
): AccessDecision {
  if (isAgentHealth(visitor.method, path)) return ADMITTED;
  if (!AGENT_PATHS.test(path)) {
    return refuse(new TorporError('not_found', 'There is nothing here.', { sandboxId }));
  }
  const given = visitor.headers['x-access-token'];
  if (typeof given === 'string' && tokens.isAccessToken(sandboxId, given)) return ADMITTED;
  const signed = given === undefined ? signedFileIn(visitor.method, path) : undefined;
  if (signed !== undefined) {
    const { file, signature } = signed;
    const why = checkSignature(file, signature, tokens.accessToken(sandboxId), clock.now() / 1_000);
    return why === undefined ? ADMITTED : refuse(new TorporError('unauthenticated', why, { sandboxId }));
  }
  return refuse(
    new TorporError('unauthenticated', 'The access token of the sandbox is missing or wrong.', {
      sandboxId,
      hint: 'Send it in X-Access-Token.',
    }),
  );
}

/** The question whether a sandbox runs, which must not change the answer. */
export function isAgentHealth(method: string, path: string): boolean {
  return (method === 'GET' || method === 'HEAD') && /^\/health(?:\?|$)/.test(path);
}

function refuse(error: TorporError): AccessDecision {
  return { is: 'refused', error };
}

function isPrivate(sandboxId: SandboxId, hadLink: boolean): TorporError {
  const message = hadLink
    ? 'This link was used before, or its time is over.'
    : 'This preview is private, and you have not been let in.';
  return new TorporError('forbidden', message, {
    sandboxId,
    hint: 'Ask whoever made the sandbox for a link (torpor ports <sandbox> --link <port>).',
    details: { dispatched: false },
  });
}

/**
 * A cookie is sent along whoever made the browser ask. Other sandboxes are neighbours under one domain, so that
 * `SameSite` does not tell them apart; what the browser says about where a request comes from does.
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
  // Two slashes at the beginning would name another host.
  const own = path.slice(0, at).replace(/^\/[/\\]+/, '/');
  return { token, location: rest === '' ? own : `${own}?${rest}` };
}

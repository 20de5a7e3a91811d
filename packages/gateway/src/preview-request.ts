/** One visit to a port of a sandbox: who is it, may they come in, and what is passed on of what they sent. */
import type { ServerResponse } from 'node:http';
import type { Clock } from '@torpor/engine';
import { type RequestId, TorporError } from '@torpor/protocol';
import { type AccessRequest, checkAccess, isAgentHealth } from './access/access-check.ts';
import { credentialHeadersIn, type IsKey } from './access/credential-headers.ts';
import { setPreviewCookie } from './access/preview-cookie.ts';
import type { CheckSignature } from './access/signed-file.ts';
import type { Tokens } from './access/tokens.ts';
import { RequestExchange } from './exchange/request-exchange.ts';
import type { Origin } from './exchange/request-head.ts';
import { openTunnel, type Upgrade } from './exchange/web-socket-upgrade.ts';
import { heldTooLong, unknownSandbox } from './gate/refusals.ts';
import type { SandboxGate } from './gate/sandbox-gate.ts';
import type { SandboxGates } from './gate/sandbox-gates.ts';
import { readPreviewStatus, STATUS_PATH } from './read-preview-status.ts';
import {
  bodyKindOf,
  type ClientRequest,
  type ClientResponse,
  isHttp2,
  isNavigation,
} from './response/client-http.ts';
import { type GatewayResponses, previewHost } from './response/gateway-responses.ts';
import { describeStatus } from './response/preview-status.ts';
import { hostNameOf } from './route/host-name.ts';
import { AGENT_PORT, type PreviewRoute } from './route/route.ts';
import type { Sandboxes, SandboxFacts } from './sandboxes.ts';
import type { GatewaySettings } from './settings.ts';

/** Who a key stands for. The gateway knows keys only from hearsay. */
export interface Keys {
  readonly isKey: IsKey;
  /** The organisation of the key in these headers; throws `unauthenticated`. */
  orgOf(headers: ClientRequest['headers']): Promise<string>;
}

export interface PreviewRequestParts {
  readonly sandboxes: Sandboxes;
  readonly doors: SandboxGates;
  readonly keys: Keys;
  readonly tokens: Tokens;
  readonly checkSignature: CheckSignature;
  readonly answers: GatewayResponses;
  readonly clock: Clock;
  readonly settings: GatewaySettings;
  /** With its port. */
  readonly domain: () => string;
  readonly refused: (route: PreviewRoute, error: TorporError, requestId: RequestId) => void;
}

export interface PreviewRequest {
  readonly route: PreviewRoute;
  readonly request: ClientRequest;
  readonly response: ClientResponse;
  readonly expectsContinue: boolean;
  readonly upgrade: Upgrade | undefined;
}

export async function handlePreviewRequest(parts: PreviewRequestParts, asked: PreviewRequest): Promise<void> {
  const { route, request, response } = asked;
  let visit = asked;
  try {
    if (request.method === 'TRACE') throw new TorporError('invalid_request', 'TRACE is not passed on.');
    // What comes after the head would be a body for one reader, and the first frames for another.
    if (visit.upgrade !== undefined && bodyKindOf(request) !== 'none')
      throw new TorporError('invalid_request', 'A request that becomes a WebSocket has no body.');
    const org = route.by === 'path' ? await parts.keys.orgOf(request.headers) : undefined;
    const sandbox = parts.doors.peek(route.sandboxId)?.facts ?? (await loadSandbox(parts, route));
    visit = { ...asked, route: { ...route, dialect: dialectOf(route, sandbox) } };
    if (org !== undefined && org !== sandbox.org) throw unknownSandbox(route.sandboxId);
    const origin = originOf(request);
    const admission = checkAccess(parts, route, sandbox, visitorOf(request, origin));
    if (admission.is === 'refused') throw admission.error;
    if (admission.is === 'linked') return redirectWithCookie(parts, visit, origin, admission.location);
    if (isStatusQuestion(route)) return await sendStatus(parts, visit);
    const isHealth = route.port === AGENT_PORT && isAgentHealth(request.method ?? '', route.path);
    // A sandbox that runs may be asked, one that sleeps must not notice.
    if (isHealth && parts.doors.peek(route.sandboxId)?.epoch === undefined) await loadSandbox(parts, route);
    const withheld = await credentialHeadersIn(
      request.headers,
      route.sandboxId,
      parts.tokens,
      parts.keys.isKey,
    );
    // While we looked, the visitor may have left.
    if (response.destroyed || response.closed) return;
    pass(parts, visit, origin, { withheld, isHealth });
  } catch (thrown) {
    refuse(parts, visit, TorporError.from(thrown));
  } finally {
    // Whoever only looked leaves nothing behind.
    parts.doors.peek(route.sandboxId)?.releaseIfUnused();
  }
}

/**
 * A client of E2B's that fetches `getHost(3000)` sends no header of E2B's. It is known by the sandbox, which was
 * created through E2B's API. Torpor's own headers and paths are only sent by clients that expect Torpor's answers.
 */
function dialectOf(route: PreviewRoute, sandbox: SandboxFacts): PreviewRoute['dialect'] {
  return route.by === 'host' && sandbox.dialect === 'e2b' ? 'e2b' : route.dialect;
}

async function loadSandbox(
  { sandboxes, doors }: PreviewRequestParts,
  { sandboxId }: PreviewRoute,
): Promise<SandboxFacts> {
  const sandbox = await sandboxes.find(sandboxId);
  if (sandbox === undefined) throw unknownSandbox(sandboxId);
  doors.of(sandboxId).noteSandbox(sandbox);
  return sandbox;
}

function refuse({ answers, refused }: PreviewRequestParts, visit: PreviewRequest, error: TorporError): void {
  refused(visit.route, error, answers.refuse(visit.request, visit.response, visit.route, error));
}

function pass(
  parts: PreviewRequestParts,
  visit: PreviewRequest,
  origin: Origin,
  { withheld, isHealth }: { readonly withheld: ReadonlySet<string>; readonly isHealth: boolean },
): void {
  const { clock, domain } = parts;
  const { route, request, response, upgrade, expectsContinue } = visit;
  const { sandboxId, port, by, path } = route;
  const door = parts.doors.of(sandboxId);
  const rules = {
    host: hostNameOf(origin.host) ?? '',
    sharesOrigin: by !== 'host',
    dropsCookies: by === 'path',
  };
  const isAgent = port === AGENT_PORT;
  const contentLength = request.headers['content-length'];
  const passage = new RequestExchange({
    clock,
    door,
    port,
    request,
    response,
    rules,
    isUse: !isHealth,
    withAgentToken: isAgent && !isHealth,
    facts: {
      method: request.method ?? 'GET',
      path,
      host: by === 'host' ? origin.host : previewHost(route, domain()),
      rawHeaders: request.rawHeaders,
      origin,
      withheld: withholding(withheld, isAgent, by),
      upgrade: upgrade !== undefined,
      expectsContinue,
      contentLength: bodyKindOf(request) === 'chunked' ? undefined : contentLength,
    },
    held: (waiting) => boundWaiting(parts, visit, door, waiting),
    refuse: (error) => refuse(parts, visit, error),
    ...(upgrade === undefined
      ? {}
      : {
          switched: (head, upstream, rest) =>
            openTunnel({ clock, door, upstream }, response as ServerResponse, upgrade, head, rules, rest),
        }),
  });
  passage.start();
}

/** The agent gets its own token instead of the client's, and the path form never has to do with cookies. */
function withholding(
  withheld: ReadonlySet<string>,
  isAgent: boolean,
  by: PreviewRoute['by'],
): ReadonlySet<string> {
  if (!isAgent && by !== 'path') return withheld;
  return new Set([...withheld, ...(isAgent ? ['x-access-token'] : []), ...(by === 'path' ? ['cookie'] : [])]);
}

/** A program gets its answer or a refusal that it can act on; a person gets something to look at. */
function boundWaiting(
  parts: PreviewRequestParts,
  visit: PreviewRequest,
  door: SandboxGate,
  passage: RequestExchange,
): void {
  const { clock, settings, answers } = parts;
  const { route, request, response } = visit;
  const over = new AbortController();
  response.once('close', () => over.abort());
  const isPerson = route.by === 'host' && visit.upgrade === undefined && isNavigation(request);
  const tooLong = () => {
    if (passage.leave()) refuse(parts, visit, heldTooLong(route.sandboxId, settings.holdMs));
  };
  const aMoment = () => {
    // A page that waits leads back here when there is nothing to wait for, again and again: that has an answer soon.
    if (!door.isStartingUp(route.port)) return void wait(settings.holdMs - settings.momentMs, tooLong);
    if (!passage.leave()) return;
    door.requestWake();
    const state = door.isClosed ? 'pausing' : door.epoch === undefined ? 'resuming' : 'running';
    const stage = describeStatus({ state, portAnswers: false, isComing: true, failure: undefined });
    answers.waiting(request, response, { ...stage, statusPath: STATUS_PATH });
  };
  const wait = (ms: number, then: () => void) => void clock.sleep(ms, over.signal).then(then, () => {});
  if (isPerson) wait(settings.momentMs, aMoment);
  else wait(settings.holdMs, tooLong);
}

function isStatusQuestion({ by, path }: PreviewRoute): boolean {
  return by === 'host' && (path === STATUS_PATH || path.startsWith(`${STATUS_PATH}?`));
}

async function sendStatus(
  parts: PreviewRequestParts,
  { route, request, response }: PreviewRequest,
): Promise<void> {
  const stage = await readPreviewStatus(parts, parts.doors.peek(route.sandboxId), route);
  parts.answers.json(request, response, 200, {}, stage);
}

function redirectWithCookie(
  parts: PreviewRequestParts,
  visit: PreviewRequest,
  origin: Origin,
  location: string,
): void {
  const { tokens, settings, answers } = parts;
  const value = tokens.cookie(visit.route.sandboxId, settings.cookieMs);
  const cookie = setPreviewCookie(value, settings.cookieMs, origin.scheme === 'https');
  answers.redirect(visit.request, visit.response, location, cookie);
}

function visitorOf({ method = 'GET', headers }: ClientRequest, { host, scheme }: Origin): AccessRequest {
  return { method, headers, host, scheme };
}

/** As the connection says, whatever the request claims. */
function originOf(request: ClientRequest): Origin {
  const { socket } = request;
  return {
    host: (isHttp2(request) ? request.authority : undefined) || request.headers.host || '',
    scheme: 'encrypted' in socket && socket.encrypted === true ? 'https' : 'http',
    remoteAddress: socket.remoteAddress ?? '',
    localPort: socket.localPort ?? 0,
  };
}

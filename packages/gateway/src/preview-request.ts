/** One request to a port of a sandbox: checks access, decides which headers are passed on, and enters the gate. */
import type { ServerResponse } from 'node:http';
import type { Clock } from '@torpor/engine';
import { PORT_PLACEHOLDER, type RequestId, TorporError } from '@torpor/protocol';
import { type AccessRequest, checkAccess, isAgentHealth } from './access/access-check.ts';
import { credentialHeadersIn, type IsKey } from './access/credential-headers.ts';
import { setPreviewCookie } from './access/preview-cookie.ts';
import type { CheckSignature } from './access/signed-file.ts';
import type { Tokens } from './access/tokens.ts';
import { RequestExchange } from './exchange/request-exchange.ts';
import { type Origin, type RequestFacts, requestHead } from './exchange/request-head.ts';
import { responseHeaders } from './exchange/response-headers.ts';
import { openTunnel, type Upgrade } from './exchange/web-socket-upgrade.ts';
import { queuedTooLong, unknownSandbox } from './gate/refusals.ts';
import type { SandboxGate } from './gate/sandbox-gate.ts';
import type { SandboxGates } from './gate/sandbox-gates.ts';
import { originOf } from './hop/passed-on.ts';
import { readPreviewStatus, STATUS_PATH } from './read-preview-status.ts';
import { bodyKindOf, type ClientRequest, type ClientResponse, isNavigation } from './response/client-http.ts';
import { type GatewayResponses, previewHost } from './response/gateway-responses.ts';
import { describeStatus } from './response/preview-status.ts';
import { hostNameOf } from './route/host-name.ts';
import { AGENT_PORT, type PreviewRoute } from './route/route.ts';
import type { SandboxDirectory, SandboxInfo } from './sandbox-directory.ts';
import type { GatewaySettings } from './settings.ts';

/** The API keys, as far as the gateway needs them. The server implements it. */
export interface Keys {
  readonly isKey: IsKey;
  /** The organisation of the key in these headers; throws `unauthenticated`. */
  orgOf(headers: ClientRequest['headers']): Promise<string>;
}

export interface PreviewRequestParts {
  readonly sandboxes: SandboxDirectory;
  readonly gates: SandboxGates;
  readonly keys: Keys;
  readonly tokens: Tokens;
  readonly checkSignature: CheckSignature;
  readonly responses: GatewayResponses;
  readonly clock: Clock;
  readonly settings: GatewaySettings;
  /** The preview domain, with its port. */
  readonly domain: () => string;
  readonly refused: (route: PreviewRoute, error: TorporError, requestId: RequestId) => void;
  /** Passes a request on that no app has seen, when its sandbox lives on another node by now. Absent on a server that is alone. */
  readonly passOnIfMoved?: (preview: PreviewRequest) => Promise<boolean>;
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
  let preview = asked;
  try {
    if (request.method === 'TRACE') throw new TorporError('invalid_request', 'TRACE is not passed on.');
    // One reader would take the bytes after the head for a body, another for the first frames.
    if (preview.upgrade !== undefined && bodyKindOf(request) !== 'none')
      throw new TorporError('invalid_request', 'A request that becomes a WebSocket has no body.');
    const org = route.by === 'path' ? await parts.keys.orgOf(request.headers) : undefined;
    const sandbox = parts.gates.findGate(route.sandboxId)?.info ?? (await loadSandbox(parts, route));
    preview = { ...asked, route: { ...route, dialect: dialectOf(route, sandbox) } };
    if (org !== undefined && org !== sandbox.org) throw unknownSandbox(route.sandboxId);
    const origin = originOf(request);
    const access = await checkAccess(parts, route, sandbox, accessRequestOf(request, origin));
    if (access.is === 'denied') throw access.error;
    if (access.is === 'link_used') return redirectWithCookie(parts, preview, origin, access.location);
    if (asksForStatus(route)) return await sendStatus(parts, preview);
    const isHealth = route.port === AGENT_PORT && isAgentHealth(request.method ?? '', route.path);
    // Only a running sandbox is asked for its health: the question must not wake one that sleeps.
    if (isHealth && parts.gates.findGate(route.sandboxId)?.run === undefined) await loadSandbox(parts, route);
    const withheld = await credentialHeadersIn(
      request.headers,
      route.sandboxId,
      parts.tokens,
      parts.keys.isKey,
    );
    // The client may have left during the checks.
    if (response.destroyed || response.closed) return;
    dispatch(parts, preview, origin, { withheld, isHealth, requestHost: sandbox.requestHost });
  } catch (thrown) {
    refuse(parts, preview, TorporError.from(thrown));
  } finally {
    // A request that was not dispatched must not leave a gate behind.
    parts.gates.findGate(route.sandboxId)?.releaseIfUnused();
  }
}

/**
 * An E2B client that fetches `getHost(3000)` sends no E2B header. The sandbox tells: it was created through E2B's API.
 * Torpor's own headers and paths are only sent by clients that expect Torpor's responses.
 */
function dialectOf(route: PreviewRoute, sandbox: SandboxInfo): PreviewRoute['dialect'] {
  return route.by === 'host' && sandbox.dialect === 'e2b' ? 'e2b' : route.dialect;
}

async function loadSandbox(
  { sandboxes, gates }: PreviewRequestParts,
  { sandboxId }: PreviewRoute,
): Promise<SandboxInfo> {
  const sandbox = await sandboxes.find(sandboxId);
  if (sandbox === undefined) throw unknownSandbox(sandboxId);
  gates.gateFor(sandboxId).updateSandbox(sandbox);
  return sandbox;
}

function refuse(parts: PreviewRequestParts, preview: PreviewRequest, error: TorporError): void {
  const { responses, refused, passOnIfMoved } = parts;
  const answer = () =>
    refused(preview.route, error, responses.refuse(preview.request, preview.response, preview.route, error));
  if (passOnIfMoved === undefined || !mayHaveMoved(error)) return void answer();
  passOnIfMoved(preview).then((isPassedOn) => {
    if (!isPassedOn) answer();
  }, answer);
}

/** A sandbox that leaves this node cannot be woken here, and no app has seen the requests that waited for it. */
function mayHaveMoved(error: TorporError): boolean {
  const { code, details } = error.toBody();
  return details?.['dispatched'] === false && (code === 'unreachable' || code === 'transitioning');
}

/** What the checks of a request have found. */
interface CheckedRequest {
  readonly withheld: ReadonlySet<string>;
  readonly isHealth: boolean;
  readonly requestHost: SandboxInfo['requestHost'];
}

function dispatch(
  parts: PreviewRequestParts,
  preview: PreviewRequest,
  origin: Origin,
  { withheld, isHealth, requestHost }: CheckedRequest,
): void {
  const { clock, domain } = parts;
  const { route, request, response, upgrade, expectsContinue } = preview;
  const { sandboxId, port, by, path } = route;
  const gate = parts.gates.gateFor(sandboxId);
  const rules = {
    host: hostNameOf(origin.host) ?? '',
    sharesOrigin: by !== 'host',
    dropsCookies: by === 'path',
  };
  const isAgent = port === AGENT_PORT;
  const shownHost = by === 'host' ? origin.host : previewHost(route, domain());
  const contentLength = request.headers['content-length'];
  const facts: RequestFacts = {
    method: request.method ?? 'GET',
    path,
    host:
      isAgent || requestHost === undefined ? shownHost : requestHost.replace(PORT_PLACEHOLDER, String(port)),
    rawHeaders: request.rawHeaders,
    origin,
    withheld: allWithheld(withheld, isAgent, by),
    upgrade: upgrade !== undefined,
    expectsContinue,
    contentLength: bodyKindOf(request) === 'chunked' ? undefined : contentLength,
  };
  const forClient = (raw: readonly string[], isChunked: boolean) =>
    responseHeaders(raw, { ...rules, isChunked });
  const exchange = new RequestExchange({
    clock,
    gate,
    port,
    request,
    response,
    method: facts.method,
    head: ({ token }) => requestHead(facts, isAgent && !isHealth ? token : undefined),
    expectsContinue,
    responseHeaders: forClient,
    countsAsUse: !isHealth,
    onQueued: (waiting) => boundWaiting(parts, preview, gate, waiting),
    refuse: (error) => refuse(parts, preview, error),
    ...(upgrade === undefined
      ? {}
      : {
          switched: (head, upstream, rest) => {
            const headers = forClient(head.headers, false);
            openTunnel({ clock, gate, upstream }, response as ServerResponse, upgrade, headers, rest);
          },
        }),
  });
  exchange.start();
}

/** The agent gets its own token instead of the client's, and the path form passes no cookies on. */
function allWithheld(
  withheld: ReadonlySet<string>,
  isAgent: boolean,
  by: PreviewRoute['by'],
): ReadonlySet<string> {
  if (!isAgent && by !== 'path') return withheld;
  return new Set([...withheld, ...(isAgent ? ['x-access-token'] : []), ...(by === 'path' ? ['cookie'] : [])]);
}

/** Bounds how long a request is queued. A program gets an error in the end; a person soon gets the waiting page. */
function boundWaiting(
  parts: PreviewRequestParts,
  preview: PreviewRequest,
  gate: SandboxGate,
  exchange: RequestExchange,
): void {
  const { clock, settings, responses } = parts;
  const { route, request, response } = preview;
  const over = new AbortController();
  response.once('close', () => over.abort());
  const isPerson = route.by === 'host' && preview.upgrade === undefined && isNavigation(request);
  const refuseQueued = () => {
    if (exchange.withdraw()) refuse(parts, preview, queuedTooLong(route.sandboxId, settings.holdMs));
  };
  const showWaitingPage = () => {
    // With nothing under way the page would reload again and again. The request gets a response soon instead.
    if (!gate.isStartingUp(route.port)) return void wait(settings.holdMs - settings.momentMs, refuseQueued);
    if (!exchange.withdraw()) return;
    gate.requestWake();
    const state = gate.isClosed ? 'pausing' : gate.run === undefined ? 'resuming' : 'running';
    const status = describeStatus({ state, portAnswers: false, isComing: true, failure: undefined });
    responses.waiting(request, response, { ...status, statusPath: STATUS_PATH });
  };
  const wait = (ms: number, then: () => void) => void clock.sleep(ms, over.signal).then(then, () => {});
  if (isPerson) wait(settings.momentMs, showWaitingPage);
  else wait(settings.holdMs, refuseQueued);
}

function asksForStatus({ by, path }: PreviewRoute): boolean {
  return by === 'host' && (path === STATUS_PATH || path.startsWith(`${STATUS_PATH}?`));
}

async function sendStatus(
  parts: PreviewRequestParts,
  { route, request, response }: PreviewRequest,
): Promise<void> {
  const status = await readPreviewStatus(parts, parts.gates.findGate(route.sandboxId), route);
  parts.responses.json(request, response, 200, {}, status);
}

function redirectWithCookie(
  parts: PreviewRequestParts,
  preview: PreviewRequest,
  origin: Origin,
  location: string,
): void {
  const { tokens, settings, responses } = parts;
  const value = tokens.cookie(preview.route.sandboxId, settings.cookieMs);
  const cookie = setPreviewCookie(value, settings.cookieMs, origin.scheme === 'https');
  responses.redirect(preview.request, preview.response, location, cookie);
}

function accessRequestOf(
  { method = 'GET', headers }: ClientRequest,
  { host, scheme }: Origin,
): AccessRequest {
  return { method, headers, host, scheme };
}

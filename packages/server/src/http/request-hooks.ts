/** Hooks that run for every request: request id, deadline, key check, log line. */
import type { Span } from '@torpor/engine';
import { passedOnBy } from '@torpor/gateway';
import { TorporError } from '@torpor/protocol';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { identify } from '../keys/identity.ts';
import type { RouteContext } from '../route-context.ts';
import { unknownHostName } from './host-names.ts';
import { isLoopback } from './loopback.ts';
import { onResponseClosed } from './on-response-closed.ts';
import { takeOrgId } from './org-id.ts';
import { RequestDeadline } from './request-deadline.ts';
import type { DeadlineKind } from './request-state.ts';

export function addRequestHooks(app: FastifyInstance, ctx: RouteContext): void {
  const { clock, settings } = ctx;
  const deadlines: Readonly<Record<DeadlineKind, number>> = {
    read: settings.readMs,
    checkpoint: settings.checkpointReadMs,
    lifecycle: settings.lifecycleMs,
  };
  for (const name of ['deadline', 'logFields', 'startedAt', 'identity', 'org', 'span'] as const)
    app.decorateRequest(name, null as never);

  app.addHook('onRequest', async (request, reply) => {
    const { config } = request.routeOptions;
    request.startedAt = clock.monotonic();
    request.logFields = {};
    request.deadline = new RequestDeadline(clock, deadlines[config.deadline ?? 'read'], settings.graceMs);
    reply.header('x-request-id', request.id);
    reply.header('cache-control', 'no-store');
    onResponseClosed(reply, () =>
      request.deadline.end(new TorporError('timeout', 'The client disconnected.')),
    );
    if (ctx.stopping.aborted) throw stoppingError();
    if (config.access === 'node') return void refuseStrangers(request);
    if (!needsKey(request) && mayAnswerWithoutKey(ctx, request)) return;
    request.identity = await request.deadline.run(() => identityOf(ctx, request));
    request.span = beginSpan(ctx, request);
    request.org = takeOrgId(request);
    refuseChanges(request);
  });

  app.addHook('onSend', async (_, reply) => {
    // A kept-alive connection would delay the stop.
    if (ctx.stopping.aborted) reply.header('connection', 'close');
  });
  app.addHook('onResponse', async (request, reply) => recordResponse(ctx, request, reply));
}

function beginSpan({ clock, tracing }: RouteContext, request: FastifyRequest): Span | undefined {
  if (!tracing.enabled) return undefined;
  const { method, headers, routeOptions, identity } = request;
  const began = new Date(clock.now() - (clock.monotonic() - request.startedAt));
  const route = routeOptions.url ?? 'unknown';
  return tracing.beginRequest(headers, began, `${method} ${route}`, {
    'http.request.method': method,
    'http.route': route,
    'torpor.request.id': request.id,
    'torpor.org': identity.org,
    'torpor.key.id': identity.keyId,
  });
}

/** A browser that is signed in at the page sends a token instead of a key. */
async function identityOf({ db, clock, pageSessions }: RouteContext, { method, headers }: FastifyRequest) {
  return (await pageSessions.identify(method, headers)) ?? identify(db, clock, headers);
}

const READS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

function refuseChanges({ identity, method, routeOptions }: FastifyRequest): void {
  const { changes = !READS.has(method) } = routeOptions.config;
  if (!identity.readOnly || !changes) return;
  throw new TorporError('forbidden', 'This key or sign-in may look at everything and change nothing.', {
    hint: 'Use a key that is not read-only, or sign in without "look only".',
  });
}

/** An unknown path needs a key too, so that a caller without a key cannot find out which paths exist. */
function needsKey(request: FastifyRequest): boolean {
  const { access = 'key' } = request.routeOptions.config;
  if (access === 'loopback') return !(isLoopback(request.socket.remoteAddress) && !isForwarded(request));
  if (access === 'page') return !wantsPage(request);
  return access === 'key';
}

/** Under an unknown host name even open routes need a key; see `HostNames`. */
function mayAnswerWithoutKey(
  { hostNames }: RouteContext,
  { routeOptions, headers }: FastifyRequest,
): boolean {
  // Only the client that a URL was signed for knows the signature.
  if (routeOptions.config.access === 'signed' || hostNames.accepts(headers)) return true;
  if (headers.authorization !== undefined || headers['x-api-key'] !== undefined) return false;
  throw unknownHostName();
}

/** A browser that opens an address asks for HTML; programs do not. */
function wantsPage({ headers }: FastifyRequest): boolean {
  return /\btext\/html\b/i.test(headers.accept ?? '');
}

/** A request that a proxy or a node forwards comes from another machine. */
function isForwarded({ headers, raw }: FastifyRequest): boolean {
  return (
    headers['forwarded'] !== undefined ||
    headers['x-forwarded-for'] !== undefined ||
    passedOnBy(raw) !== undefined
  );
}

/** For everybody but another node the path does not exist. */
function refuseStrangers({ raw }: FastifyRequest): void {
  if (passedOnBy(raw) === undefined) throw new TorporError('not_found', 'There is no such path.');
}

function stoppingError(): TorporError {
  return new TorporError('unreachable', 'The server is stopping.', { retryAfterMs: 1_000 });
}

function endSpan({ span, logFields }: FastifyRequest, { statusCode }: FastifyReply): void {
  const { sandboxId, operationId, errorCode } = logFields;
  span?.set({
    'http.response.status_code': statusCode,
    'torpor.sandbox.id': sandboxId,
    'torpor.operation.id': operationId,
    'error.type': errorCode,
  });
  // By convention a request that the client got wrong is no failure of the server.
  span?.end(statusCode < 500 ? undefined : { code: errorCode ?? 'internal', message: `HTTP ${statusCode}` });
}

function recordResponse(
  { clock, log, metrics }: RouteContext,
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  request.deadline.release();
  endSpan(request, reply);
  const route = request.routeOptions.url ?? 'unknown';
  const { method } = request;
  const durationMs = Math.round(clock.monotonic() - request.startedAt);
  metrics.requests.inc({ method, route, status: reply.statusCode });
  metrics.requestSeconds.observe({ method, route }, durationMs / 1_000);
  const { errorCode, ...ids } = request.logFields;
  log.info(
    {
      event: 'request',
      requestId: request.id,
      method,
      route,
      status: reply.statusCode,
      durationMs,
      ...(request.identity
        ? { org: request.identity.org, subject: request.identity.subject, keyId: request.identity.keyId }
        : {}),
      ...ids,
      ...(errorCode === undefined ? {} : { code: errorCode }),
    },
    `${method} ${route} ${reply.statusCode}`,
  );
}

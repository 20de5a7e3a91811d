/** What happens to every request around its route: its id, its time, its key, its line in the log. */
import { TorporError } from '@torpor/protocol';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { identify } from '../keys/identity.ts';
import type { RouteParts } from '../parts.ts';
import { strangeName } from './host-names.ts';
import { isLoopback } from './loopback.ts';
import { takeOrgId } from './org-id.ts';
import { RequestBound } from './request-bound.ts';
import type { BoundKind } from './request-state.ts';
import { whenOver } from './when-over.ts';

export function addRequestHooks(app: FastifyInstance, parts: RouteParts): void {
  const { clock, settings, db } = parts;
  const bounds: Readonly<Record<BoundKind, number>> = {
    read: settings.readMs,
    checkpoint: settings.checkpointReadMs,
    lifecycle: settings.lifecycleMs,
  };
  for (const name of ['bound', 'facts', 'startedAt', 'identity', 'org'] as const)
    app.decorateRequest(name, null as never);

  app.addHook('onRequest', async (request, reply) => {
    const { config } = request.routeOptions;
    request.startedAt = clock.monotonic();
    request.facts = {};
    request.bound = new RequestBound(clock, bounds[config.bound ?? 'read'], settings.graceMs);
    reply.header('x-request-id', request.id);
    reply.header('cache-control', 'no-store');
    whenOver(reply, () => request.bound.end(new TorporError('timeout', 'The caller went away.')));
    if (parts.stopping.aborted) throw leaving();
    if (!needsKey(request) && mayAnswerAnybody(parts, request)) return;
    request.identity = await request.bound.run(() => identify(db, clock, request.headers));
    request.org = takeOrgId(request);
  });

  app.addHook('onSend', async (_, reply) => {
    // A connection that is kept would hold up the stop.
    if (parts.stopping.aborted) reply.header('connection', 'close');
  });
  app.addHook('onResponse', async (request, reply) => answered(parts, request, reply));
}

/** A path that leads nowhere needs a key too, so that a stranger cannot tell which do. */
function needsKey(request: FastifyRequest): boolean {
  const { access = 'key' } = request.routeOptions.config;
  if (access === 'loopback') return !(isLoopback(request.socket.remoteAddress) && !isForwarded(request));
  return access === 'key';
}

/** Under a name that is not ours a key is needed after all; see `HostNames`. */
function mayAnswerAnybody({ hostNames }: RouteParts, { routeOptions, headers }: FastifyRequest): boolean {
  // What is signed is known to nobody but whom it was signed for.
  if (routeOptions.config.access === 'signed' || hostNames.knows(headers)) return true;
  if (headers.authorization !== undefined || headers['x-api-key'] !== undefined) return false;
  throw strangeName();
}

/** A proxy on this machine speaks for somebody who is not on it. */
function isForwarded({ headers }: FastifyRequest): boolean {
  return headers['forwarded'] !== undefined || headers['x-forwarded-for'] !== undefined;
}

function leaving(): TorporError {
  return new TorporError('unreachable', 'The server is stopping.', { retryAfterMs: 1_000 });
}

function answered({ clock, log, metrics }: RouteParts, request: FastifyRequest, reply: FastifyReply): void {
  request.bound.release();
  const route = request.routeOptions.url ?? 'unknown';
  const { method } = request;
  const durationMs = Math.round(clock.monotonic() - request.startedAt);
  metrics.requests.inc({ method, route, status: reply.statusCode });
  metrics.requestSeconds.observe({ method, route }, durationMs / 1_000);
  const { errorCode, ...ids } = request.facts;
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

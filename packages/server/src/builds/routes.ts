/** `/api/generation/*` and `/api/jobs/*`: what programs outside rely on, word for word. */
import type { Builds, Owner } from '@torpor/builds';
import {
  type BuildRequest,
  buildCancelledSchema,
  buildLogPageSchema,
  buildPageSchema,
  buildRequestSchema,
  buildResumedSchema,
  buildSnapshotSchema,
  buildStartedSchema,
  buildStatusSchema,
  jobViewSchema,
  previewCheckSchema,
  TorporError,
} from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteParts } from '../parts.ts';
import { answerBuildFailure, WrongMoment } from './failures.ts';
import { streamEvents, streamLogs } from './streams.ts';

const params = z.object({ id: z.string().max(200) });
const listQuery = z.strictObject({
  limit: z.coerce.number().int().min(1).max(100).default(20),
  cursor: z
    .string()
    .regex(/^\d{1,15}$/)
    .optional(),
});
const logQuery = z.strictObject({
  limit: z.coerce.number().int().min(1).max(500).default(100),
  before_id: z.coerce.number().int().min(1).max(Number.MAX_SAFE_INTEGER).optional(),
});
const docsSchema = z.object({
  overview: z.string().nullable(),
  features: z.string().nullable(),
  getting_started: z.string().nullable(),
  faq: z.string().nullable(),
  changelog: z.string().nullable(),
});
const nothing = { id: null };

export function buildRoutes(app: RoutesApp, parts: RouteParts): void {
  const { builds } = parts;
  if (builds === undefined) return;
  app.register(async (face: RoutesApp) => {
    face.setErrorHandler((thrown, request, reply) => answerBuildFailure(parts, thrown, request, reply));
    generationRoutes(face, parts, builds);
    jobRoutes(face, parts, builds);
  });
}

function ownerOf({ identity }: FastifyRequest): Owner {
  return { org: identity.org, user: identity.subject };
}

/** Twice under one key is once. */
function once<T>(parts: RouteParts, request: FastifyRequest, work: () => Promise<T>): Promise<T> {
  const { id } = (request.params ?? nothing) as { readonly id: string | null };
  const thing = `${request.identity.subject} ${id ?? ''}`;
  return request.bound.run(() => parts.replays.once(request, thing, async () => ({ body: await work() })));
}

function generationRoutes(face: RoutesApp, parts: RouteParts, builds: Builds): void {
  const lifecycle = { bound: 'lifecycle' } as const;

  face.post(
    '/api/generation/start',
    { schema: { hide: true, body: buildRequestSchema, response: { 201: buildStartedSchema } } },
    async (request, reply) => {
      const body: BuildRequest = request.body;
      return reply.code(201).send(await once(parts, request, () => builds.begin(ownerOf(request), body)));
    },
  );
  face.get(
    '/api/generation/:id/status',
    { schema: { hide: true, params, response: { 200: buildStatusSchema } } },
    (request) => request.bound.run(() => builds.status(ownerOf(request), request.params.id)),
  );
  face.post(
    '/api/generation/:id/cancel',
    { config: lifecycle, schema: { hide: true, params, response: { 200: buildCancelledSchema } } },
    (request) => once(parts, request, () => builds.cancel(ownerOf(request), request.params.id)),
  );
  face.post(
    '/api/generation/:id/resume',
    { config: lifecycle, schema: { hide: true, params, response: { 200: buildResumedSchema } } },
    (request) => request.bound.run(() => builds.resume(ownerOf(request), request.params.id)),
  );
  face.post(
    '/api/generation/:id/snapshot',
    { config: lifecycle, schema: { hide: true, params, response: { 200: buildSnapshotSchema } } },
    (request) => request.bound.run(() => builds.snapshot(ownerOf(request), request.params.id)),
  );
  face.post(
    '/api/generation/:id/rebuild',
    { schema: { hide: true, params, response: { 201: buildStartedSchema } } },
    async (request, reply) => {
      const { id } = request.params;
      return reply.code(201).send(await once(parts, request, () => builds.rebuild(ownerOf(request), id)));
    },
  );
  face.get(
    '/api/generation/:id/preview-check',
    { config: lifecycle, schema: { hide: true, params, response: { 200: previewCheckSchema } } },
    (request) => request.bound.run(() => builds.previewCheck(ownerOf(request), request.params.id)),
  );
  face.post('/api/generation/:id/preview-viewed', { schema: { hide: true, params } }, async (request) => {
    const { id } = request.params;
    const first = await request.bound.run(() => builds.previewViewed(ownerOf(request), id));
    return { gate_id: null, status: first ? 'gate_created' : 'gate_already_created' };
  });
  face.get(
    '/api/generation/:id/docs',
    { schema: { hide: true, params, response: { 200: docsSchema } } },
    async (request) => {
      const overview = await request.bound.run(() => builds.readme(ownerOf(request), request.params.id));
      return { overview, features: null, getting_started: null, faq: null, changelog: null };
    },
  );
}

function jobRoutes(face: RoutesApp, parts: RouteParts, builds: Builds): void {
  face.post(
    '/api/jobs',
    { schema: { hide: true, body: buildRequestSchema, response: { 201: jobViewSchema } } },
    async (request, reply) => {
      const body: BuildRequest = request.body;
      return reply.code(201).send(await once(parts, request, () => builds.enqueue(ownerOf(request), body)));
    },
  );
  face.get(
    '/api/jobs',
    { schema: { hide: true, querystring: listQuery, response: { 200: buildPageSchema } } },
    (request) => {
      const { limit, cursor = String(Number.MAX_SAFE_INTEGER) } = request.query;
      return request.bound.run(() => builds.list(ownerOf(request), Number(cursor), limit));
    },
  );
  face.get('/api/jobs/:id', { schema: { hide: true, params, response: { 200: jobViewSchema } } }, (request) =>
    request.bound.run(() => builds.job(ownerOf(request), request.params.id)),
  );
  const stream = { exposeHeadRoute: false, schema: { hide: true, params } };
  face.get('/api/jobs/:id/stream', stream, (request, reply) =>
    streamEvents(parts, request, reply, ownerOf(request), request.params.id, 'status'),
  );
  face.get('/api/jobs/:id/events/stream', stream, (request, reply) =>
    streamEvents(parts, request, reply, ownerOf(request), request.params.id, 'typed'),
  );
  face.get('/api/jobs/:id/logs/stream', stream, (request, reply) =>
    streamLogs(parts, request, reply, ownerOf(request), request.params.id),
  );
  face.get(
    '/api/jobs/:id/logs',
    { schema: { hide: true, params, querystring: logQuery, response: { 200: buildLogPageSchema } } },
    (request) => {
      const { limit, before_id: beforeId } = request.query;
      const page = { limit, beforeId };
      return request.bound.run(() => builds.logPage(ownerOf(request), request.params.id, page));
    },
  );
  face.post('/api/jobs/:id/confirm', { schema: { hide: true, params } }, (request) =>
    request.bound.run(() =>
      builds.confirm(ownerOf(request), request.params.id).catch((thrown: unknown) => {
        const refused = thrown instanceof TorporError && thrown.code === 'invalid_request';
        throw refused ? new WrongMoment(thrown.message) : thrown;
      }),
    ),
  );
}

/** `/api/jobs`: builds as work in a line, with what they say while they are at it. */
import type { Builds } from '@torpor/builds';
import {
  buildLogPageSchema,
  buildPageSchema,
  buildRequestSchema,
  iterationsGrantedSchema,
  jobViewSchema,
  TorporError,
} from '@torpor/protocol';
import { z } from 'zod';
import { json } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';
import { NotAwaitingConfirmation } from './failures.ts';
import { buildErrors, jobParams, onceUnderKey, ownerOf, refusal, startErrors } from './route-schema.ts';
import { streamEvents, streamLogs } from './streams.ts';

const tags = ['builds'];
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

export function jobRoutes(face: RoutesApp, ctx: RouteContext, builds: Builds): void {
  face.post(
    '/api/jobs',
    {
      schema: {
        operationId: 'enqueueBuild',
        summary: 'Start a build, and get its place in the line',
        tags,
        body: buildRequestSchema,
        response: {
          201: json('Where it stands, and what the user has used.', jobViewSchema),
          ...startErrors,
        },
      },
    },
    async (request, reply) => {
      const { body } = request;
      return reply
        .code(201)
        .send(await onceUnderKey(ctx, request, () => builds.enqueue(ownerOf(request), body)));
    },
  );

  face.get(
    '/api/jobs',
    {
      schema: {
        operationId: 'listBuilds',
        summary: 'The builds of the user, newest first',
        tags,
        querystring: listQuery,
        response: { 200: json('One page.', buildPageSchema), ...buildErrors() },
      },
    },
    (request) => {
      const { limit, cursor = String(Number.MAX_SAFE_INTEGER) } = request.query;
      return request.deadline.run(() => builds.list(ownerOf(request), Number(cursor), limit));
    },
  );

  face.get(
    '/api/jobs/:id',
    {
      schema: {
        operationId: 'getJob',
        summary: 'The place of a build in the line, and what the user has used',
        tags,
        params: jobParams,
        response: { 200: json('As it is now.', jobViewSchema), ...buildErrors('not_found') },
      },
    },
    (request) => request.deadline.run(() => builds.job(ownerOf(request), request.params.id)),
  );

  face.get(
    '/api/jobs/:id/logs',
    {
      schema: {
        operationId: 'getBuildLogs',
        summary: 'What a build has said',
        tags,
        params: jobParams,
        querystring: logQuery,
        response: {
          200: json('The last lines, or those before one.', buildLogPageSchema),
          ...buildErrors('not_found', 'expired'),
        },
      },
    },
    (request) => {
      const { limit, before_id: beforeId } = request.query;
      const page = { limit, beforeId };
      return request.deadline.run(() => builds.logPage(ownerOf(request), request.params.id, page));
    },
  );

  face.post(
    '/api/jobs/:id/confirm',
    {
      schema: {
        operationId: 'confirmIterations',
        summary: 'Let a build have more iterations',
        tags,
        params: jobParams,
        response: {
          200: json('How many more.', iterationsGrantedSchema),
          ...buildErrors('not_found'),
          400: refusal('It does not await a confirmation, or has had all that there are.'),
        },
      },
    },
    (request) =>
      request.deadline.run(() =>
        builds.confirm(ownerOf(request), request.params.id).catch((thrown: unknown) => {
          const refused = thrown instanceof TorporError && thrown.code === 'invalid_request';
          throw refused ? new NotAwaitingConfirmation(thrown.message) : thrown;
        }),
      ),
  );

  streamRoutes(face, ctx);
}

function streamRoutes(face: RoutesApp, ctx: RouteContext): void {
  const stream = (operationId: string, summary: string, description: string) => ({
    exposeHeadRoute: false,
    schema: {
      operationId,
      summary,
      description,
      tags,
      params: jobParams,
      response: {
        200: {
          description: 'Server-sent events, with signs of life; they end with the build.',
          content: { 'text/event-stream': { schema: z.string() } },
        },
        ...buildErrors('not_found', 'expired', 'quota_exceeded'),
      },
    },
  });

  face.get(
    '/api/jobs/:id/stream',
    stream(
      'streamBuildStatus',
      'The state of a build, now and whenever it changes',
      'Frames are `BuildEvent`s.',
    ),
    async (request, reply) => {
      await streamEvents(ctx, request, reply, ownerOf(request), request.params.id, 'status');
      return reply;
    },
  );
  face.get(
    '/api/jobs/:id/events/stream',
    stream(
      'streamBuildEvents',
      'Everything that happens to a build',
      'Frames are `BuildEvent`s and named by their type. After `ready` comes `snapshot.updated` or `snapshot.failed`, ' +
        'within a bound; then the stream ends. Of a build for which that is over there is one frame, its last step. ' +
        'With `Last-Event-ID` there is everything after that event.',
    ),
    async (request, reply) => {
      await streamEvents(ctx, request, reply, ownerOf(request), request.params.id, 'typed');
      return reply;
    },
  );
  face.get(
    '/api/jobs/:id/logs/stream',
    stream(
      'streamBuildLogs',
      'What a build says from now on',
      'Frames `log` are `BuildLogLine`s; `done` has the status that it ended with.',
    ),
    async (request, reply) => {
      await streamLogs(ctx, request, reply, ownerOf(request), request.params.id);
      return reply;
    },
  );
}

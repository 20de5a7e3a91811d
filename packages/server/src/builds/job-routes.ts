/** `/api/jobs`: builds as jobs in a queue, with their logs and events. */
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

export function jobRoutes(app: RoutesApp, ctx: RouteContext, builds: Builds): void {
  app.post(
    '/api/jobs',
    {
      schema: {
        operationId: 'enqueueBuild',
        summary: 'Start a build and get its position in the queue',
        tags,
        body: buildRequestSchema,
        response: {
          201: json('The position of the build, and what the user has used.', jobViewSchema),
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

  app.get(
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

  app.get(
    '/api/jobs/:id',
    {
      schema: {
        operationId: 'getJob',
        summary: 'The position of a build in the queue, and what the user has used',
        tags,
        params: jobParams,
        response: { 200: json('The current state.', jobViewSchema), ...buildErrors('not_found') },
      },
    },
    (request) => request.deadline.run(() => builds.job(ownerOf(request), request.params.id)),
  );

  app.get(
    '/api/jobs/:id/logs',
    {
      schema: {
        operationId: 'getBuildLogs',
        summary: 'The log of a build',
        tags,
        params: jobParams,
        querystring: logQuery,
        response: {
          200: json('The last lines, or the lines before `before_id`.', buildLogPageSchema),
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

  app.post(
    '/api/jobs/:id/confirm',
    {
      schema: {
        operationId: 'confirmIterations',
        summary: 'Allow a build more iterations',
        tags,
        params: jobParams,
        response: {
          200: json('The number of additional iterations.', iterationsGrantedSchema),
          ...buildErrors('not_found'),
          400: refusal('The build does not await a confirmation, or has no iterations left.'),
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

  streamRoutes(app, ctx);
}

function streamRoutes(app: RoutesApp, ctx: RouteContext): void {
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
          description: 'Server-sent events with heartbeats. The stream ends with the build.',
          content: { 'text/event-stream': { schema: z.string() } },
        },
        ...buildErrors('not_found', 'expired', 'quota_exceeded'),
      },
    },
  });

  app.get(
    '/api/jobs/:id/stream',
    stream(
      'streamBuildStatus',
      'The state of a build, now and after each change',
      'Frames are `BuildEvent`s.',
    ),
    async (request, reply) => {
      await streamEvents(ctx, request, reply, ownerOf(request), request.params.id, 'status');
      return reply;
    },
  );
  app.get(
    '/api/jobs/:id/events/stream',
    stream(
      'streamBuildEvents',
      'All events of a build',
      'Frames are `BuildEvent`s, named by their type. After `ready` comes `snapshot.updated` or `snapshot.failed` ' +
        'within a time limit; then the stream ends. For a finished build the stream has one frame, its last step. ' +
        'With `Last-Event-ID` the stream begins after that event.',
    ),
    async (request, reply) => {
      await streamEvents(ctx, request, reply, ownerOf(request), request.params.id, 'typed');
      return reply;
    },
  );
  app.get(
    '/api/jobs/:id/logs/stream',
    stream(
      'streamBuildLogs',
      'New log lines of a build',
      'Frames `log` are `BuildLogLine`s. The frame `done` has the final status.',
    ),
    async (request, reply) => {
      await streamLogs(ctx, request, reply, ownerOf(request), request.params.id);
      return reply;
    },
  );
}

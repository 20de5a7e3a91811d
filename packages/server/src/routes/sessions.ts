/** Sessions: conversations with a program in a sandbox that sleeps, is replaced or dies. */
import {
  healingSchema,
  idSchema,
  openSessionReplySchema,
  openSessionRequestSchema,
  pageSchema,
  rebindRequestSchema,
  sessionKeySchema,
  sessionViewSchema,
  sessionWakeSchema,
} from '@torpor/protocol';
import { z } from 'zod';
import { callerOf } from '../http/caller.ts';
import { requireService } from '../http/org-id.ts';
import { errors, json, numberedPageQuery, pageQuery } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

export const sessionParams = z.object({ id: idSchema('ses') });

/** What waking or making a sandbox may answer. */
const SPAWN_ERRORS = [
  'not_found',
  'conflict',
  'transitioning',
  'quota_exceeded',
  'capacity',
  'capability_unsupported',
  'checkpoint_missing',
  'idempotency_mismatch',
] as const;

const listQuery = z.strictObject({
  ...pageQuery('ses'),
  key: sessionKeySchema.optional(),
  ended: z.enum(['true', 'false']).optional(),
});

export function sessionRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { sessions, replays } = ctx;
  const tags = ['sessions'];

  app.post(
    '/v1/sessions',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'openSession',
        summary: 'Get the session of a key, or open one, with a sandbox that runs',
        description:
          'A sandbox that sleeps is woken, one that is dead is replaced; `session.change` says what was done and ' +
          'what was lost. What a session is made with counts when it is made; when no sandbox can be made from that, ' +
          'a corrected request under the same key takes its place.',
        tags,
        body: openSessionRequestSchema,
        response: { 200: json('The session.', openSessionReplySchema), ...errors(...SPAWN_ERRORS) },
      },
    },
    async (request) => {
      const { key, spawn, ...spec } = request.body;
      const { org } = request.identity;
      return request.deadline.run((signal) =>
        replays.once(
          request,
          '',
          async () => {
            const session = await sessions.open(org, key, spec);
            const body = spawn
              ? await sessions.getOrSpawn({ org, signal }, session.id)
              : { session, sandbox: null };
            return { body };
          },
          'forget',
        ),
      );
    },
  );

  app.get(
    '/v1/sessions',
    {
      schema: {
        operationId: 'listSessions',
        summary: 'The sessions of the organisation',
        tags,
        querystring: listQuery,
        response: { 200: json('One page.', pageSchema(sessionViewSchema)), ...errors() },
      },
    },
    async (request) => {
      const { limit, cursor = '', key, ended } = request.query;
      const filter = { org: request.identity.org, key, ended: ended === 'true' };
      return request.deadline.run(() => sessions.list(filter, cursor, limit));
    },
  );

  app.get(
    '/v1/sessions/:id',
    {
      schema: {
        operationId: 'getSession',
        summary: 'One session',
        tags,
        params: sessionParams,
        response: { 200: json('The session.', sessionViewSchema), ...errors('not_found') },
      },
    },
    async (request) => request.deadline.run(() => sessions.get(request.identity.org, request.params.id)),
  );

  app.get(
    '/v1/sessions/:id/wakes',
    {
      schema: {
        operationId: 'listWakes',
        summary: 'What became of the sandboxes of a session, oldest first',
        description:
          'One line for each wake: the sandbox before and after, what it was started from, what was lost, or how it ' +
          'failed. A failure that repeats is one line with a count. The oldest lines are forgotten first.',
        tags,
        params: sessionParams,
        querystring: numberedPageQuery,
        response: {
          200: json('One page. Cursors are `ordinal`.', pageSchema(sessionWakeSchema)),
          ...errors('not_found'),
        },
      },
    },
    async (request) => {
      const { limit, cursor = 0 } = request.query;
      return request.deadline.run(() =>
        sessions.wakes(request.identity.org, request.params.id, cursor, limit),
      );
    },
  );

  app.post(
    '/v1/sessions/:id/rebind',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'rebindSession',
        summary: 'Give a session another sandbox',
        description:
          'A new one from its last files, or from the template when there are none; or one that is named. `runtime` ' +
          'moves the session to another runtime; files stay with the runtime that wrote them. The sandbox it had is ' +
          'left alone. `session.change` says what was lost, and since when.',
        tags,
        params: sessionParams,
        body: rebindRequestSchema,
        response: { 200: json('It is bound.', openSessionReplySchema), ...errors(...SPAWN_ERRORS) },
      },
    },
    async (request) => {
      const { id } = request.params;
      return request.deadline.run((signal) =>
        replays.once(request, id, async () => ({
          body: await sessions.rebind(callerOf(request, signal), id, request.body),
        })),
      );
    },
  );

  app.delete(
    '/v1/sessions/:id',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'endSession',
        summary: 'End a session and its sandbox',
        tags,
        params: sessionParams,
        response: {
          200: json('It is ended.', sessionViewSchema),
          ...errors('not_found', 'idempotency_mismatch'),
        },
      },
    },
    async (request) => {
      const { id } = request.params;
      const { org } = request.identity;
      return request.deadline.run(() =>
        replays.once(request, id, async () => ({ body: await sessions.end(org, id) })),
      );
    },
  );

  app.get(
    '/v1/admin/session-healing',
    {
      schema: {
        operationId: 'sessionHealing',
        summary: 'How many sessions have a dead sandbox, and how fast they heal',
        description: 'For service keys. The figures are those of the whole server.',
        tags: ['server'],
        response: { 200: json('The figures.', healingSchema), ...errors('forbidden') },
      },
    },
    async (request) => {
      requireService(request.identity);
      return request.deadline.run(() => sessions.healing());
    },
  );
}

/** Sessions: conversations with a program in a sandbox, which may be paused and replaced meanwhile. */
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

/** Errors of routes that wake or create a sandbox. */
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
        summary: 'Get or open the session of a key, with a running sandbox',
        description:
          'A paused sandbox is woken, a dead one is replaced. `session.change` says what was done and ' +
          'what was lost. The specification counts when the session is created. When no sandbox can be made from it, ' +
          'a corrected request under the same key replaces it.',
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
        summary: 'The wakes of a session, oldest first',
        description:
          'One entry per wake: the sandbox before and after, what it was started from, what was lost, or why it ' +
          'failed. Repeated failures are one entry with a count. The oldest entries are removed first.',
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
          'A new sandbox from the last files, or from the template when there are none; or the sandbox that is named. `runtime` ' +
          'moves the session to another runtime; files stay with the runtime that wrote them. The previous sandbox is ' +
          'not changed. `session.change` says what was lost, and since when.',
        tags,
        params: sessionParams,
        body: rebindRequestSchema,
        response: {
          200: json('The session and its sandbox.', openSessionReplySchema),
          ...errors(...SPAWN_ERRORS),
        },
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
        summary: 'End a session and kill its sandbox',
        tags,
        params: sessionParams,
        response: {
          200: json('The ended session.', sessionViewSchema),
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
        summary: 'How many sessions have a dead sandbox, and how fast they are reconciled',
        description: 'For service keys. The figures cover the whole server.',
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

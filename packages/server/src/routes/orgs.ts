/** Organisations. Operator keys manage all of them; any other key sees only its own. */
import {
  changeOrgRequestSchema,
  createOrgRequestSchema,
  orgDetailsSchema,
  orgIdSchema,
  orgViewSchema,
  pageSchema,
} from '@torpor/protocol';
import { z } from 'zod';
import { requireOperator, requireOrg } from '../http/org-id.ts';
import { errors, json, limitQuery } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { changeOrg, createOrg, deleteOrg, getOrg, pageOfOrgs } from '../orgs/manage.ts';
import type { RouteContext } from '../route-context.ts';

const params = z.object({ id: orgIdSchema });
const config = { orgId: 'operator' } as const;

export function orgRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { replays } = ctx;
  const tags = ['organisations'];

  app.get(
    '/v1/orgs',
    {
      schema: {
        operationId: 'listOrgs',
        summary: 'Organisations',
        description: 'An operator key sees all of them, any other key its own.',
        tags,
        querystring: z.strictObject({ limit: limitQuery, cursor: orgIdSchema.or(z.literal('')).optional() }),
        response: { 200: json('One page, in the order of ids.', pageSchema(orgViewSchema)), ...errors() },
      },
    },
    async ({ identity, query, deadline }) => {
      const { limit, cursor = '' } = query;
      if (identity.operator) return deadline.run(() => pageOfOrgs(ctx, cursor, limit));
      const { used: _, ...own } = await deadline.run(() => getOrg(ctx, identity.org));
      return { items: cursor < own.id ? [own] : [], nextCursor: null };
    },
  );

  app.post(
    '/v1/orgs',
    {
      schema: {
        operationId: 'createOrg',
        summary: 'Create an organisation',
        description: 'For operator keys. Create its first key with `POST /v1/keys?orgId=`.',
        tags,
        body: createOrgRequestSchema,
        response: {
          201: json('The new organisation.', orgDetailsSchema),
          ...errors('forbidden', 'conflict', 'idempotency_mismatch'),
        },
      },
    },
    async (request, reply) => {
      requireOperator(request.identity);
      const made = await request.deadline.run(() =>
        replays.once(request, '', async () => ({ body: await createOrg(ctx, request.body) })),
      );
      return reply.code(201).send(made);
    },
  );

  app.get(
    '/v1/orgs/:id',
    {
      config,
      schema: {
        operationId: 'getOrg',
        summary: 'One organisation, with its quotas and what is used of them',
        tags,
        params,
        response: { 200: json('The organisation.', orgDetailsSchema), ...errors('forbidden', 'not_found') },
      },
    },
    async ({ identity, params: { id }, deadline }) => {
      const org = requireOrg(identity, id);
      return deadline.run(() => getOrg(ctx, org));
    },
  );

  app.patch(
    '/v1/orgs/:id',
    {
      config,
      schema: {
        operationId: 'changeOrg',
        summary: 'Change quotas and retention',
        description:
          'For operator keys. Fields that are not given do not change. A new retention withdraws announced deletions that it ' +
          'does not require. A quota that is not given does not change; null removes it. A quota below the usage takes ' +
          'nothing away, but refuses anything that would add to the usage.',
        tags,
        params,
        body: changeOrgRequestSchema,
        response: {
          200: json('The changed organisation.', orgDetailsSchema),
          ...errors('forbidden', 'not_found'),
        },
      },
    },
    async (request) => {
      requireOperator(request.identity);
      return request.deadline.run(() => changeOrg(ctx, request.params.id, request.body));
    },
  );

  app.delete(
    '/v1/orgs/:id',
    {
      config,
      schema: {
        operationId: 'deleteOrg',
        summary: 'Delete an empty organisation',
        description:
          'For operator keys. Refused while it has sandboxes, kept checkpoints, templates, sessions, builds, ' +
          'webhooks, secrets or keys; `details` counts them. Its name cannot be used again.',
        tags,
        params,
        response: {
          200: json('The deleted organisation.', orgViewSchema),
          ...errors('forbidden', 'not_found', 'conflict', 'idempotency_mismatch'),
        },
      },
    },
    async (request) => {
      requireOperator(request.identity);
      const { id } = request.params;
      return request.deadline.run(() =>
        replays.once(request, id, async () => ({ body: await deleteOrg(ctx, id) })),
      );
    },
  );
}

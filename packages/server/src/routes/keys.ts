/** The API keys of an organisation. Its service keys and operator keys may manage them. */
import {
  createdKeySchema,
  createKeyRequestSchema,
  keyIdSchema,
  keyViewSchema,
  pageSchema,
  TorporError,
} from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { requireOperator } from '../http/org-id.ts';
import { errors, json, pageQuery } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { createKey, pageOfKeys, revokeKey } from '../keys/manage.ts';
import { requireOrgExists } from '../orgs/manage.ts';
import type { RouteContext } from '../route-context.ts';

export function keyRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { replays } = ctx;
  const tags = ['keys'];

  app.get(
    '/v1/keys',
    {
      config,
      schema: {
        operationId: 'listKeys',
        summary: 'The keys of the organisation, including revoked and expired ones',
        tags,
        querystring: z.strictObject(pageQuery('key')),
        response: { 200: json('One page.', pageSchema(keyViewSchema)), ...errors('forbidden', 'not_found') },
      },
    },
    async (request) => {
      const org = managedBy(request);
      const { limit, cursor = '' } = request.query;
      return request.deadline.run(async () => {
        await requireOrgExists(ctx, org);
        return pageOfKeys(ctx, org, cursor, limit);
      });
    },
  );

  app.post(
    '/v1/keys',
    {
      config,
      schema: {
        operationId: 'createKey',
        summary: 'Create a key',
        description:
          'The key itself appears only in this answer. With `subject` it is the key of one ' +
          'user, without it a service key. An operator key may create keys of any organisation with `orgId`.',
        tags,
        body: createKeyRequestSchema,
        response: {
          201: json('The new key.', createdKeySchema),
          ...errors('forbidden', 'not_found', 'conflict', 'idempotency_mismatch'),
        },
      },
    },
    async (request, reply) => {
      const org = managedBy(request);
      if (request.body.operator === true) requireOperator(request.identity);
      const made = await request.deadline.run(() =>
        replays.once(request, org, async () => {
          const body = await createKey(ctx, org, request.body);
          return { body, again: shownOnce(body.id) };
        }),
      );
      return reply.code(201).send(made);
    },
  );

  app.delete(
    '/v1/keys/:id',
    {
      config,
      schema: {
        operationId: 'revokeKey',
        summary: 'Revoke a key',
        tags,
        params: z.object({ id: keyIdSchema }),
        response: {
          200: json('The key is revoked.', keyViewSchema),
          ...errors('forbidden', 'not_found', 'conflict', 'idempotency_mismatch'),
        },
      },
    },
    async (request) => {
      const org = managedBy(request);
      const { id } = request.params;
      return request.deadline.run(() =>
        replays.once(request, `${org} ${id}`, async () => ({
          body: await revokeKey(ctx, org, id, request.identity.operator),
        })),
      );
    },
  );
}

/** The request hooks have already decided who may name another organisation. */
const config = { orgId: 'operator' } as const;

function managedBy({ identity, org }: FastifyRequest): string {
  if (identity.service) return org;
  throw new TorporError('forbidden', 'The key of a user cannot manage keys.');
}

function shownOnce(id: string): TorporError {
  return new TorporError(
    'conflict',
    `This request has already created the key ${id}. A key is shown only once.`,
    {
      hint: 'If the key did not arrive, revoke it and create another with a new Idempotency-Key.',
      details: { keyId: id },
    },
  );
}

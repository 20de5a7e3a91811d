/** The secrets of an organisation. Its service keys may manage them; no answer contains a value. */
import {
  pageSchema,
  secretNameSchema,
  secretViewSchema,
  setSecretRequestSchema,
  TorporError,
} from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { errors, json, namedPageQuery } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

const params = z.object({ name: secretNameSchema });

export function secretRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { secrets } = ctx;
  const tags = ['secrets'];

  app.get(
    '/v1/secrets',
    {
      schema: {
        operationId: 'listSecrets',
        summary: 'The secrets of the organisation, without their values',
        tags,
        querystring: z.strictObject(namedPageQuery),
        response: { 200: json('One page.', pageSchema(secretViewSchema)), ...errors('forbidden') },
      },
    },
    async (request) => {
      const org = managedBy(request);
      const { limit, cursor = '' } = request.query;
      return request.deadline.run(() => secrets.list(org, cursor, limit));
    },
  );

  app.get(
    '/v1/secrets/:name',
    {
      schema: {
        operationId: 'getSecret',
        summary: 'One secret, without its value',
        tags,
        params,
        response: { 200: json('The secret.', secretViewSchema), ...errors('forbidden', 'not_found') },
      },
    },
    async (request) => {
      const org = managedBy(request);
      return request.deadline.run(() => secrets.get(org, request.params.name));
    },
  );

  app.put(
    '/v1/secrets/:name',
    {
      schema: {
        operationId: 'setSecret',
        summary: 'Set a secret',
        description:
          'Creates or replaces it as a whole. Sandboxes that name it in `network.secrets` use it from their next ' +
          'request on: the egress puts it into the header of requests to the host, and the sandbox never sees it.',
        tags,
        params,
        body: setSecretRequestSchema,
        response: {
          200: json('The secret, without its value.', secretViewSchema),
          ...errors('forbidden', 'not_found', 'conflict', 'quota_exceeded'),
        },
      },
    },
    async (request) => {
      const org = managedBy(request);
      return request.deadline.run(() => secrets.set(org, request.params.name, request.body));
    },
  );

  app.delete(
    '/v1/secrets/:name',
    {
      schema: {
        operationId: 'deleteSecret',
        summary: 'Delete a secret',
        description: 'Sandboxes that name it go on without it, from their next request on.',
        tags,
        params,
        response: {
          200: json('The deleted secret.', secretViewSchema),
          ...errors('forbidden', 'not_found'),
        },
      },
    },
    async (request) => {
      const org = managedBy(request);
      return request.deadline.run(() => secrets.delete(org, request.params.name));
    },
  );
}

function managedBy({ identity }: FastifyRequest): string {
  if (identity.service) return identity.org;
  throw new TorporError('forbidden', 'The key of a user cannot manage secrets.');
}

/** The webhooks of an organisation. Its service keys may manage them. */
import {
  createdWebhookSchema,
  createWebhookRequestSchema,
  deadLetterSchema,
  idSchema,
  pageSchema,
  replayWebhookRequestSchema,
  TorporError,
  webhookTestSchema,
  webhookViewSchema,
} from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { errors, json, numberedPageQuery, pageQuery } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

const params = z.object({ id: idSchema('hook') });

export function webhookRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { webhooks, replays } = ctx;
  const tags = ['webhooks'];

  app.get(
    '/v1/webhooks',
    {
      schema: {
        operationId: 'listWebhooks',
        summary: 'The webhooks of the organisation',
        tags,
        querystring: z.strictObject(pageQuery('hook')),
        response: { 200: json('One page.', pageSchema(webhookViewSchema)), ...errors('forbidden') },
      },
    },
    async (request) => {
      const org = managedBy(request);
      const { limit, cursor = '' } = request.query;
      return request.deadline.run(() => webhooks.list(org, cursor, limit));
    },
  );

  app.post(
    '/v1/webhooks',
    {
      schema: {
        operationId: 'createWebhook',
        summary: 'Send events to an address',
        description:
          'Each event is one POST with the event as JSON, signed as Standard Webhooks defines it, at least once and in ' +
          'order for each sandbox. The secret appears only in this answer.',
        tags,
        body: createWebhookRequestSchema,
        response: {
          201: json('The new webhook.', createdWebhookSchema),
          ...errors('forbidden', 'not_found', 'conflict', 'quota_exceeded', 'idempotency_mismatch'),
        },
      },
    },
    async (request, reply) => {
      const org = managedBy(request);
      const made = await request.deadline.run(() =>
        replays.once(request, '', async () => {
          const body = await webhooks.create(org, request.body);
          return { body, again: shownOnce(body.id) };
        }),
      );
      return reply.code(201).send(made);
    },
  );

  app.get(
    '/v1/webhooks/:id',
    {
      schema: {
        operationId: 'getWebhook',
        summary: 'One webhook, with what waits and what was given up',
        tags,
        params,
        response: { 200: json('The webhook.', webhookViewSchema), ...errors('forbidden', 'not_found') },
      },
    },
    async (request) => {
      const org = managedBy(request);
      return request.deadline.run(() => webhooks.get(org, request.params.id));
    },
  );

  app.delete(
    '/v1/webhooks/:id',
    {
      schema: {
        operationId: 'deleteWebhook',
        summary: 'Delete a webhook',
        description: 'Events that wait for it are not sent any more.',
        tags,
        params,
        response: {
          200: json('The deleted webhook.', webhookViewSchema),
          ...errors('forbidden', 'not_found', 'idempotency_mismatch'),
        },
      },
    },
    async (request) => {
      const org = managedBy(request);
      const { id } = request.params;
      return request.deadline.run(() =>
        replays.once(request, id, async () => ({ body: await webhooks.delete(org, id) })),
      );
    },
  );

  app.get(
    '/v1/webhooks/:id/dead-letters',
    {
      schema: {
        operationId: 'listDeadLetters',
        summary: 'Events that were given up, oldest first',
        description: 'Cursors are `position`. A replay from the position of one of them sends it again.',
        tags,
        params,
        querystring: numberedPageQuery,
        response: {
          200: json('One page.', pageSchema(deadLetterSchema)),
          ...errors('forbidden', 'not_found'),
        },
      },
    },
    async (request) => {
      const org = managedBy(request);
      const { limit, cursor = 0 } = request.query;
      return request.deadline.run(() => webhooks.deadLetters(org, request.params.id, cursor, limit));
    },
  );

  app.post(
    '/v1/webhooks/:id/replay',
    {
      schema: {
        operationId: 'replayWebhook',
        summary: 'Send events again from a position on',
        description: 'In order, also those that were given up. Later events follow them.',
        tags,
        params,
        body: replayWebhookRequestSchema,
        response: {
          200: json('The webhook.', webhookViewSchema),
          ...errors('forbidden', 'not_found', 'idempotency_mismatch'),
        },
      },
    },
    async (request) => {
      const org = managedBy(request);
      const { id } = request.params;
      const { fromPosition } = request.body;
      return request.deadline.run(() =>
        replays.once(request, id, async () => ({ body: await webhooks.replay(org, id, fromPosition) })),
      );
    },
  );

  app.post(
    '/v1/webhooks/:id/test',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'testWebhook',
        summary: 'Send a request of the type `webhook.test` now',
        description:
          'The answer says what the receiver answered. The request is not an event and is sent once.',
        tags,
        params,
        response: { 200: json('What happened.', webhookTestSchema), ...errors('forbidden', 'not_found') },
      },
    },
    async (request) => {
      const org = managedBy(request);
      return request.deadline.run(() => webhooks.test(org, request.params.id));
    },
  );
}

function managedBy({ identity }: FastifyRequest): string {
  if (identity.service) return identity.org;
  throw new TorporError('forbidden', 'The key of a user cannot manage webhooks.');
}

function shownOnce(id: string): TorporError {
  return new TorporError(
    'conflict',
    `This request has already created the webhook ${id}. Its secret is shown only once.`,
    {
      hint: 'If the secret did not arrive, delete the webhook and create another with a new Idempotency-Key.',
      details: { webhookId: id },
    },
  );
}

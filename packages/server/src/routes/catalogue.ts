/** What there is to make sandboxes from: runtimes with what each can do, and templates. */
import {
  createTemplateRequestSchema,
  pageSchema,
  runtimeViewSchema,
  TorporError,
  templateViewSchema,
} from '@torpor/protocol';
import { z } from 'zod';
import { errors, json, wholeQuery } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteParts } from '../parts.ts';

export function catalogueRoutes(app: RoutesApp, { engine, replays }: RouteParts): void {
  const tags = ['catalogue'];
  // Both lists are short and come whole; they take the words of a page so that callers need no exception.
  const querystring = z.strictObject(wholeQuery);

  app.get(
    '/v1/runtimes',
    {
      schema: {
        operationId: 'listRuntimes',
        summary: 'Runtimes and what each can do',
        tags,
        querystring,
        response: { 200: json('All of them.', pageSchema(runtimeViewSchema)), ...errors() },
      },
    },
    async () => ({ items: engine.runtimes(), nextCursor: null }),
  );

  app.get(
    '/v1/templates',
    {
      schema: {
        operationId: 'listTemplates',
        summary: 'Templates to create sandboxes from',
        tags,
        querystring,
        response: { 200: json('All of them.', pageSchema(templateViewSchema)), ...errors() },
      },
    },
    async (request) => ({ items: await request.bound.run(() => engine.templates()), nextCursor: null }),
  );

  app.post(
    '/v1/templates',
    {
      schema: {
        operationId: 'createTemplate',
        summary: 'Make a template from a checkpoint',
        description:
          'Not possible yet: every server has the template `base`, and sandboxes start from checkpoints too.',
        tags,
        body: createTemplateRequestSchema,
        response: {
          201: json('It is made.', templateViewSchema),
          ...errors('not_found', 'capability_unsupported', 'idempotency_mismatch'),
        },
      },
    },
    async (request) => {
      await request.bound.run(() =>
        replays.once(request, '', async () => {
          await engine.checkpoint(request.identity.org, request.body.from);
          throw new TorporError('capability_unsupported', 'Templates cannot be made from checkpoints yet.', {
            checkpointId: request.body.from,
            hint: 'Create sandboxes from the checkpoint itself: {"from": "ckpt_…"}.',
          });
        }),
      );
    },
  );
}

/** What runs sandboxes, and what each can do. */
import { pageSchema, runtimeViewSchema } from '@torpor/protocol';
import { z } from 'zod';
import { errors, json, wholeQuery } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteParts } from '../parts.ts';

export function catalogueRoutes(app: RoutesApp, { engine }: RouteParts): void {
  app.get(
    '/v1/runtimes',
    {
      schema: {
        operationId: 'listRuntimes',
        summary: 'Runtimes and what each can do',
        tags: ['catalogue'],
        // A short list that comes whole; it takes the words of a page so that callers need no exception.
        querystring: z.strictObject(wholeQuery),
        response: { 200: json('All of them.', pageSchema(runtimeViewSchema)), ...errors() },
      },
    },
    async () => ({ items: engine.runtimes(), nextCursor: null }),
  );
}

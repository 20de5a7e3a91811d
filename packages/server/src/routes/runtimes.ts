/** What runs sandboxes, and what each can do. */
import { pageSchema, runtimeViewSchema } from '@torpor/protocol';
import { z } from 'zod';
import { errors, json, unpagedQuery } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

export function runtimeRoutes(app: RoutesApp, { engine }: RouteContext): void {
  app.get(
    '/v1/runtimes',
    {
      schema: {
        operationId: 'listRuntimes',
        summary: 'Runtimes and what each can do',
        tags: ['catalogue'],
        // A short list that comes whole; it takes the words of a page so that callers need no exception.
        querystring: z.strictObject(unpagedQuery),
        response: { 200: json('All of them.', pageSchema(runtimeViewSchema)), ...errors() },
      },
    },
    async () => ({ items: engine.runtimes(), nextCursor: null }),
  );
}

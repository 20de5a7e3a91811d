/** The runtimes of the server and their capabilities. */
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
        summary: 'Runtimes and their capabilities',
        tags: ['catalogue'],
        // A short list without pages. It accepts the page parameters, so that clients can treat all lists alike.
        querystring: z.strictObject(unpagedQuery),
        response: { 200: json('All runtimes.', pageSchema(runtimeViewSchema)), ...errors() },
      },
    },
    async () => ({ items: engine.runtimes(), nextCursor: null }),
  );
}

/** The settings of this server, with the source of each value. None of them is secret. */
import { pageSchema, settingViewSchema } from '@torpor/protocol';
import { z } from 'zod';
import { requireService } from '../http/org-id.ts';
import { errors, json, unpagedQuery } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

export function settingRoutes(app: RoutesApp, { settingsList }: RouteContext): void {
  app.get(
    '/v1/admin/settings',
    {
      schema: {
        operationId: 'listSettings',
        summary: 'The settings that the server runs with',
        description: 'For service keys. `source` says where a value comes from.',
        tags: ['server'],
        querystring: z.strictObject(unpagedQuery),
        response: { 200: json('All settings.', pageSchema(settingViewSchema)), ...errors('forbidden') },
      },
    },
    async (request) => {
      requireService(request.identity);
      return { items: [...settingsList], nextCursor: null };
    },
  );
}

/** Operations, with their phase and outcome. */
import { idSchema, operationViewSchema, pageSchema } from '@torpor/protocol';
import { z } from 'zod';
import { errors, json, limitQuery, operationParams, sandboxIdParam } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

export function operationRoutes(app: RoutesApp, { engine }: RouteContext): void {
  const tags = ['operations'];

  app.get(
    '/v1/operations',
    {
      schema: {
        operationId: 'listOperations',
        summary: 'Operations, of one sandbox or of all, newest first',
        tags,
        querystring: z.strictObject({
          limit: limitQuery,
          cursor: idSchema('op').optional(),
          sandboxId: sandboxIdParam.optional(),
        }),
        response: { 200: json('One page.', pageSchema(operationViewSchema)), ...errors() },
      },
    },
    async (request) => {
      const { limit, cursor, sandboxId } = request.query;
      return request.deadline.run(() => engine.operations(request.identity.org, sandboxId, cursor, limit));
    },
  );

  app.get(
    '/v1/operations/:id',
    {
      schema: {
        operationId: 'getOperation',
        summary: 'One operation',
        tags,
        params: operationParams,
        response: { 200: json('The operation.', operationViewSchema), ...errors('not_found') },
      },
    },
    async (request) => {
      request.logFields.operationId = request.params.id;
      return request.deadline.run(() => engine.operation(request.identity.org, request.params.id));
    },
  );
}

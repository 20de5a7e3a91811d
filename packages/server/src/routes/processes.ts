/** The processes of a sandbox. */
import { pageSchema, processViewSchema } from '@torpor/protocol';
import { errors, json, sandboxParams } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';
import { processesOf } from '../sandbox/processes.ts';

export function processRoutes(app: RoutesApp, ctx: RouteContext): void {
  app.get(
    '/v1/sandboxes/:id/processes',
    {
      schema: {
        operationId: 'listProcesses',
        summary: 'Services, background processes and running commands',
        description:
          'Never wakes the sandbox. `suspended`: the sandbox is paused. `restarted`: the service was started ' +
          'again because processes did not survive. `lost` has a `reason`.',
        tags: ['commands'],
        params: sandboxParams,
        response: {
          200: json('All processes.', pageSchema(processViewSchema)),
          ...errors('not_found', 'transitioning', 'conflict'),
        },
      },
    },
    async (request) => {
      const { id } = request.params;
      request.logFields.sandboxId = id;
      const items = await request.deadline.run((signal) =>
        processesOf(ctx, request.identity.org, id, signal),
      );
      return { items, nextCursor: null };
    },
  );
}

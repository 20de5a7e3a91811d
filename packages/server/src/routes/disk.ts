/** The disk of the checkpoints: its free space and the changes of its level. */
import { diskViewSchema, TorporError } from '@torpor/protocol';
import { requireOperator } from '../http/org-id.ts';
import { errors, json } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

export function diskRoutes(app: RoutesApp, { engine }: RouteContext): void {
  app.get(
    '/v1/admin/disk',
    {
      schema: {
        operationId: 'getDisk',
        summary: 'Free space on the checkpoint disk, and the last changes of its level',
        description: 'For operator keys. The disk is measured every few seconds.',
        tags: ['server'],
        response: {
          200: json('The last measurement.', diskViewSchema),
          ...errors('forbidden', 'unreachable'),
        },
      },
    },
    async (request) => {
      requireOperator(request.identity);
      const { reserve = null, ...disk } = engine.disk() ?? unknown();
      const cache = engine.cache() ?? null;
      return { ...disk, reserve, cache, events: await request.deadline.run(() => engine.diskEvents()) };
    },
  );
}

function unknown(): never {
  throw new TorporError('unreachable', 'The checkpoint disk has not been measured yet.');
}

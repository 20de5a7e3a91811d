/** The disk of the checkpoints: how much room it has, and how that changed. */
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
        summary: 'Room on the disk of the checkpoints, and the last changes of its level',
        description: 'For operator keys. What the last look found; there is one every few seconds.',
        tags: ['server'],
        response: {
          200: json('As the last look found it.', diskViewSchema),
          ...errors('forbidden', 'unreachable'),
        },
      },
    },
    async (request) => {
      requireOperator(request.identity);
      const { reserve = null, ...disk } = engine.disk() ?? unknown();
      return { ...disk, reserve, events: await request.deadline.run(() => engine.diskEvents()) };
    },
  );
}

function unknown(): never {
  throw new TorporError('unreachable', 'The disk of the checkpoints has not been looked at yet.');
}

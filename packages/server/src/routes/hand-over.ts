/** A node that is drained asks this node to go on with a sandbox. Only nodes can: the request is signed with the cluster secret. */
import { z } from 'zod';
import { sandboxParams } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

export function handOverRoutes(app: RoutesApp, ctx: RouteContext): void {
  app.post(
    '/v1/cluster/sandboxes/:id/resume',
    {
      config: { deadline: 'lifecycle', access: 'node' },
      schema: {
        hide: true,
        params: sandboxParams,
        querystring: z.object({ org: z.string().min(1).max(255) }),
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { org } = request.query;
      request.logFields.sandboxId = id;
      await request.deadline.run((signal) => ctx.engine.resume({ org, signal }, id));
      return reply.code(204).send(null);
    },
  );
}

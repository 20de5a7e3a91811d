/** Another node calls the engine of this node. Only nodes can: the request is signed with the cluster secret. */
import { z } from 'zod';
import { answerCall, REMOTE_CALLS } from '../cluster/engine-calls.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

export function engineCallRoutes(app: RoutesApp, { engine }: RouteContext): void {
  app.post(
    '/v1/cluster/engine/:call',
    {
      config: { deadline: 'lifecycle', access: 'node' },
      schema: {
        hide: true,
        params: z.object({ call: z.enum(REMOTE_CALLS) }),
        body: z.object({ args: z.array(z.unknown()).min(1) }),
      },
    },
    async (request) => {
      const { call } = request.params;
      const result = await request.deadline.run((signal) =>
        answerCall(engine, call, request.body.args, signal),
      );
      return { result };
    },
  );
}

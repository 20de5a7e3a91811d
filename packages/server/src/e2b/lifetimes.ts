/** E2B's routes that set the end of a running sandbox. A connect, in lifecycle.ts, never sets an earlier end. */
import { z } from 'zod';
import { actorIn } from '../http/caller.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';
import { waitForTransition } from '../sandbox/wait-for-transition.ts';
import { secondsSchema } from './create-request.ts';
import { notFound } from './failures.ts';
import { idParams } from './route-params.ts';
import { isPaused } from './sandbox-shapes.ts';

/** A refresh extends the life of a sandbox by at least this much. */
const REFRESH_SECONDS = 15;

export function e2bLifetimeRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { engine } = ctx;

  app.post(
    '/sandboxes/:id/timeout',
    {
      config: { deadline: 'lifecycle' },
      schema: { hide: true, params: idParams, body: z.object({ timeout: secondsSchema }) },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { org } = request.identity;
      request.logFields.sandboxId = id;
      await request.deadline.run(async () => {
        await waitForTransition(ctx.clock, request.deadline.signal, async () => {
          // As with E2B, a paused sandbox has no end to set and is 404 here.
          if (isPaused(await engine.get(org, id))) throw notFound('The running sandbox');
          await engine.setEnd(org, id, request.body.timeout, 'exactly', actorIn(request));
        });
      });
      return reply.code(204).send();
    },
  );

  app.post(
    '/sandboxes/:id/refreshes',
    {
      schema: {
        hide: true,
        params: idParams,
        body: z.object({ duration: z.number().int().min(0).max(3_600).nullish() }),
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const seconds = Math.max(REFRESH_SECONDS, request.body.duration ?? 0);
      request.logFields.sandboxId = id;
      await request.deadline.run(() =>
        engine.setEnd(request.identity.org, id, seconds, 'at least', actorIn(request)),
      );
      return reply.code(204).send();
    },
  );
}

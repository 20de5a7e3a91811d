/** E2B's routes for pause, connect, resume, fork and the network of a sandbox. */
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { actorIn } from '../http/caller.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { runVerb } from '../http/run-verb.ts';
import type { RouteContext } from '../route-context.ts';
import { waitForTransition } from '../sandbox/wait-for-transition.ts';
import { DEFAULT_SECONDS, secondsSchema } from './create-request.ts';
import { e2bError } from './failures.ts';
import { egressSchema, networkOf, ruleSecretsOf, withRules } from './network-rules.ts';
import { idParams } from './route-params.ts';
import { isPaused, sandboxShape } from './sandbox-shapes.ts';

const startSchema = z.object({ timeout: secondsSchema.nullish(), memory: z.boolean().nullish() });
type Start = z.infer<typeof startSchema>;

export function e2bLifecycleRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { engine } = ctx;
  const config = { deadline: 'lifecycle' } as const;

  app.post(
    '/sandboxes/:id/pause',
    { config, schema: { hide: true, params: idParams, body: z.object({ memory: z.boolean().nullish() }) } },
    async (request, reply) => {
      const { id } = request.params;
      const { memory } = request.body;
      const mode =
        memory === undefined || memory === null ? {} : ({ mode: memory ? 'memory' : 'files' } as const);
      const { paused } = await runVerb(ctx, request, id, (caller) =>
        waitForTransition(ctx.clock, request.deadline.signal, () => engine.pause(caller, id, mode)).catch(
          avoidConflictStatus,
        ),
      );
      if (!paused) throw new TorporError('conflict', 'The sandbox is already paused.', { sandboxId: id });
      return reply.code(204).send();
    },
  );

  const connect = async (request: FastifyRequest, reply: FastifyReply, id: SandboxId, wanted: Start) => {
    const start = await resumeOptions(ctx, request.identity.org, id, wanted);
    const { sandbox, resumed } = await runVerb(ctx, request, id, (caller) =>
      waitForTransition(ctx.clock, request.deadline.signal, () => engine.resume(caller, id, start)),
    );
    return reply.code(resumed ? 201 : 200).send(sandboxShape(ctx, sandbox));
  };
  for (const path of ['/sandboxes/:id/connect', '/v2/sandboxes/:id/connect']) {
    app.post(
      path,
      { config, schema: { hide: true, params: idParams, body: startSchema } },
      async (request, reply) => connect(request, reply, request.params.id, request.body),
    );
  }
  app.post(
    '/sandboxes/:id/resume',
    { config, schema: { hide: true, params: idParams, body: startSchema } },
    async (request, reply) => {
      const { id } = request.params;
      const { state } = await request.deadline.run(() => engine.get(request.identity.org, id));
      if (state === 'running') throw new TorporError('conflict', 'The sandbox is already running.');
      const { timeout } = request.body;
      return connect(request, reply, id, { ...request.body, timeout: timeout ?? DEFAULT_SECONDS.v1 });
    },
  );

  app.post(
    '/sandboxes/:id/fork',
    {
      config,
      schema: {
        hide: true,
        params: idParams,
        body: z.object({
          timeout: secondsSchema.nullish(),
          count: z.number().int().min(1).max(100).nullish(),
        }),
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { org } = request.identity;
      const { timeout, count } = request.body;
      const wanted = {
        count: count ?? 1,
        ...(timeout === undefined || timeout === null ? {} : { timeoutSeconds: Math.max(1, timeout) }),
      };
      const { forks } = await runVerb(ctx, request, id, (caller) =>
        waitForTransition(ctx.clock, request.deadline.signal, async () => {
          if (isPaused(await engine.get(org, id))) throw pausedError(id);
          return engine.fork(caller, id, wanted);
        }),
      );
      const results = forks.map((fork) =>
        'sandbox' in fork
          ? { sandbox: sandboxShape(ctx, fork.sandbox) }
          : { error: e2bError(TorporError.fromBody(fork.error)) },
      );
      return reply.code(201).send(results);
    },
  );

  app.put(
    '/sandboxes/:id/network',
    { config, schema: { hide: true, params: idParams, body: egressSchema } },
    async (request, reply) => {
      const { id } = request.params;
      const policy = networkOf(request.body);
      const rules = ruleSecretsOf(request.body);
      request.logFields.sandboxId = id;
      await request.deadline.run(() =>
        waitForTransition(ctx.clock, request.deadline.signal, async () => {
          const { org } = request.identity;
          const network = await withRules(ctx.secrets, org, policy, rules);
          return engine.setNetwork(org, id, network, actorIn(request));
        }),
      );
      return reply.code(204).send();
    },
  );
}

/**
 * The timeout of a run that a connect starts or joins. Without `timeout` it is the timeout that the sandbox was made
 * with, and never less than E2B's default. A sandbox that was made without a timeout keeps none.
 */
async function resumeOptions(
  { engine }: RouteContext,
  org: string,
  id: SandboxId,
  { timeout, memory }: Start,
) {
  const mode = memory === false ? ({ mode: 'files' } as const) : {};
  if (timeout !== undefined && timeout !== null) return { timeoutSeconds: Math.max(1, timeout), ...mode };
  const { timeoutSeconds } = await engine.get(org, id);
  return timeoutSeconds === null
    ? mode
    : { timeoutSeconds: Math.max(DEFAULT_SECONDS.v2, timeoutSeconds), ...mode };
}

function pausedError(sandboxId: SandboxId): TorporError {
  return new TorporError('conflict', 'The sandbox is paused: connect to it first, then fork it.', {
    sandboxId,
  });
}

/** E2B's SDK takes any 409 to mean that the sandbox is already paused, so other conflicts become `unreachable`. */
function avoidConflictStatus(thrown: unknown): never {
  if (!(thrown instanceof TorporError)) throw thrown;
  if (thrown.code !== 'transitioning' && thrown.code !== 'conflict') throw thrown;
  throw new TorporError('unreachable', thrown.message, { ...thrown.toBody(), cause: thrown });
}

/** Pause, connect, resume, fork and the network of a sandbox, as E2B's clients ask for them. */
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { lifecycle } from '../http/lifecycle.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteParts } from '../parts.ts';
import { DEFAULT_SECONDS, secondsSchema } from './create-request.ts';
import { e2bError } from './failures.ts';
import { egressSchema, networkOf } from './network-rules.ts';
import { inTurn } from './patience.ts';
import { idParams } from './route-words.ts';
import { isAsleep, sandboxShape } from './sandbox-shapes.ts';

const startSchema = z.object({ timeout: secondsSchema.nullish(), memory: z.boolean().nullish() });
type Start = z.infer<typeof startSchema>;

export function e2bLifecycleRoutes(app: RoutesApp, parts: RouteParts): void {
  const { engine } = parts;
  const config = { bound: 'lifecycle' } as const;

  app.post(
    '/sandboxes/:id/pause',
    { config, schema: { hide: true, params: idParams, body: z.object({ memory: z.boolean().nullish() }) } },
    async (request, reply) => {
      const { id } = request.params;
      const { memory } = request.body;
      const mode =
        memory === undefined || memory === null ? {} : ({ mode: memory ? 'memory' : 'files' } as const);
      const { paused } = await lifecycle(parts, request, id, (caller) =>
        inTurn(parts, request, () => engine.pause(caller, id, mode)).catch(notPaused),
      );
      if (!paused) throw new TorporError('conflict', 'The sandbox is paused already.', { sandboxId: id });
      return reply.code(204).send();
    },
  );

  const connect = async (request: FastifyRequest, reply: FastifyReply, id: SandboxId, wanted: Start) => {
    const start = await startOf(parts, request.identity.org, id, wanted);
    const { sandbox, resumed } = await lifecycle(parts, request, id, (caller) =>
      inTurn(parts, request, () => engine.resume(caller, id, start)),
    );
    return reply.code(resumed ? 201 : 200).send(sandboxShape(parts, sandbox));
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
      const { state } = await request.bound.run(() => engine.get(request.identity.org, id));
      if (state === 'running') throw new TorporError('conflict', 'The sandbox is running already.');
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
      const { forks } = await lifecycle(parts, request, id, (caller) =>
        inTurn(parts, request, async () => {
          if (isAsleep(await engine.get(org, id))) throw asleep(id);
          return engine.fork(caller, id, wanted);
        }),
      );
      const results = forks.map((fork) =>
        'sandbox' in fork
          ? { sandbox: sandboxShape(parts, fork.sandbox) }
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
      const network = networkOf(request.body);
      request.facts.sandboxId = id;
      await request.bound.run(() =>
        inTurn(parts, request, () => engine.setNetwork(request.identity.org, id, network)),
      );
      return reply.code(204).send();
    },
  );
}

/**
 * The lifetime of a run that a connect begins or joins. Who does not say gets what the sandbox was made with, and
 * never less than E2B gives; one that was made without an end keeps none.
 */
async function startOf({ engine }: RouteParts, org: string, id: SandboxId, { timeout, memory }: Start) {
  const mode = memory === false ? ({ mode: 'files' } as const) : {};
  if (timeout !== undefined && timeout !== null) return { timeoutSeconds: Math.max(1, timeout), ...mode };
  const { timeoutSeconds } = await engine.get(org, id);
  return timeoutSeconds === null
    ? mode
    : { timeoutSeconds: Math.max(DEFAULT_SECONDS.v2, timeoutSeconds), ...mode };
}

function asleep(sandboxId: SandboxId): TorporError {
  return new TorporError('conflict', 'The sandbox is paused: connect to it first, then fork it.', {
    sandboxId,
  });
}

/** To their SDK a 409 means that the sandbox is paused already, so nothing else may be answered with one. */
function notPaused(thrown: unknown): never {
  if (!(thrown instanceof TorporError)) throw thrown;
  if (thrown.code !== 'transitioning' && thrown.code !== 'conflict') throw thrown;
  throw new TorporError('unreachable', thrown.message, { ...thrown.toBody(), cause: thrown });
}

/** Runs what changes a sandbox within the request's time, and finds out which operation it became. */
import type { Caller } from '@torpor/engine';
import { type OperationId, type SandboxId, TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import { operationOf } from '../observe/operation-trace.ts';
import type { RouteContext } from '../route-context.ts';
import { callerOf } from './caller.ts';
import { RequestDeadline } from './request-deadline.ts';

export async function lifecycle<T>(
  ctx: RouteContext,
  request: FastifyRequest,
  sandboxId: SandboxId | undefined,
  work: (caller: Caller) => Promise<T>,
): Promise<T> {
  const { engine, operations } = ctx;
  const { org } = request.identity;
  const made: OperationId[] = [];
  if (sandboxId !== undefined) request.logFields.sandboxId = sandboxId;
  const late = () => stillUnderWay(ctx, request, sandboxId, made);
  const result = await request.deadline.run(
    (signal) => operations.watch(made, () => work(callerOf(request, signal))),
    late,
  );
  const operationId = await shortly(ctx, () => operationOf(engine, org, made));
  if (operationId !== undefined) request.logFields.operationId = operationId;
  return result;
}

/** A moment for a look at the database, which may be what hangs. */
const LOOK_MS = 500;

async function shortly<T>({ clock }: RouteContext, look: () => Promise<T>): Promise<T | undefined> {
  const deadline = new RequestDeadline(clock, LOOK_MS, 0);
  return deadline
    .run(look)
    .catch(() => undefined)
    .finally(() => deadline.release());
}

async function stillUnderWay(
  ctx: RouteContext,
  request: FastifyRequest,
  sandboxId: SandboxId | undefined,
  made: readonly OperationId[],
): Promise<TorporError> {
  const { engine } = ctx;
  const { org } = request.identity;
  const operationId = await shortly(ctx, async () => {
    const own = await operationOf(engine, org, made);
    if (own !== undefined || sandboxId === undefined) return own;
    return (await engine.get(org, sandboxId)).operationId ?? undefined;
  });
  return new TorporError(
    'timeout',
    `There was no answer within ${request.deadline.ms} ms; it is still under way.`,
    {
      ...(sandboxId === undefined ? {} : { sandboxId }),
      ...(operationId === undefined ? {} : { operationId }),
    },
  );
}

/** Runs a verb of the engine within the request's deadline, and adds its operation to the log fields. */
import type { Caller } from '@torpor/engine';
import { type OperationId, type SandboxId, TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import type { RouteContext } from '../route-context.ts';
import { callerOf } from './caller.ts';
import { RequestDeadline } from './request-deadline.ts';

/** What every verb answers with: the operation that the request became, or null when none was needed. */
interface VerbAnswer {
  readonly operation: { readonly id: OperationId } | null;
}

export async function runVerb<T extends VerbAnswer>(
  ctx: RouteContext,
  request: FastifyRequest,
  sandboxId: SandboxId | undefined,
  verb: (caller: Caller) => Promise<T>,
): Promise<T> {
  if (sandboxId !== undefined) request.logFields.sandboxId = sandboxId;
  const answer = await request.deadline.run(
    (signal) => verb(callerOf(request, signal)),
    () => stillUnderWay(ctx, request, sandboxId),
  );
  if (answer.operation !== null) request.logFields.operationId = answer.operation.id;
  return answer;
}

/** The time for a query to the database, which may be what hangs. */
const QUERY_MS = 500;

/** The engine itself answers a late verb with its operation. This answer is for an engine that cannot answer. */
async function stillUnderWay(
  { clock, engine }: RouteContext,
  request: FastifyRequest,
  sandboxId: SandboxId | undefined,
): Promise<TorporError> {
  const deadline = new RequestDeadline(clock, QUERY_MS, 0);
  const { org } = request.identity;
  const operationId = await deadline
    .run(async () => (sandboxId === undefined ? null : (await engine.get(org, sandboxId)).operationId))
    .catch(() => null)
    .finally(() => deadline.release());
  return new TorporError(
    'timeout',
    `There was no answer within ${request.deadline.ms} ms; it is still under way.`,
    {
      ...(sandboxId === undefined ? {} : { sandboxId }),
      ...(operationId === null ? {} : { operationId }),
    },
  );
}

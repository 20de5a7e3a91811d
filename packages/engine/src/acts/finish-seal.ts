/** What follows the commit of a seal after which the sandbox continues: it is thawed, or started again. */
import { type Reason, TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { endOperation, FenceLost, type Operation } from '../operations/operation.ts';
import { fencedTransaction, type OperationHandle, passFaultPoint } from '../operations/operation-handle.ts';
import { ConstraintViolation } from '../ports/database.ts';
import type { Sandbox } from '../sandbox.ts';
import type { ContinuingSealPlan } from './seal-plan.ts';
import { beginResume, start } from './start.ts';
import { thawAfterSeal } from './thaw.ts';
import { openTrafficGate } from './traffic-gate.ts';

/** The last step of an act that seals. A sandbox that restarts has its gate closed until it runs. */
export async function finishSeal(
  ctx: Context,
  handle: OperationHandle,
  sandbox: Sandbox,
  plan: Pick<ContinuingSealPlan, 'afterwards' | 'checkpointId' | 'reason'>,
): Promise<void> {
  const { operation, trace } = handle;
  await passFaultPoint(ctx, operation, 'seal-committed');
  switch (plan.afterwards) {
    case 'runs on':
      trace.enter('thaw');
      return thawAfterSeal(ctx, operation, sandbox, plan.checkpointId);
    case 'restarts':
      return startPaused(ctx, handle, plan.reason);
  }
}

/** Starts the sandbox that the same operation has just paused; also after that operation's server died. */
export async function startPaused(ctx: Context, handle: OperationHandle, reason: Reason): Promise<void> {
  const { operation } = handle;
  let resuming: Sandbox;
  try {
    resuming = await fencedTransaction(ctx, operation, (tx, paused) =>
      beginResume(ctx, tx, paused, operation, reason),
    );
  } catch (thrown) {
    if (thrown instanceof FenceLost) throw thrown;
    await stayPaused(ctx, operation, thrown);
    return openTrafficGate(ctx, operation.sandboxId);
  }
  await start(ctx, handle, resuming);
}

/** The checkpoint to start from may have been deleted during the seal; the sandbox stays paused then. */
async function stayPaused(ctx: Context, operation: Operation, thrown: unknown): Promise<void> {
  const error =
    thrown instanceof ConstraintViolation
      ? new TorporError(
          'expired',
          'The checkpoint to go back to was deleted meanwhile; the sandbox is paused.',
        )
      : TorporError.from(thrown);
  await fencedTransaction(ctx, operation, (tx) =>
    endOperation(tx, operation, ctx.clock.now(), { outcome: 'failed', error }),
  );
}

/**
 * What snapshot, fork and rollback share: seal a running sandbox and have it running afterwards, either
 * in place or, where the runtime cannot do that or another checkpoint is wanted, by a pause and a start.
 */
import { type Reason, TorporError } from '@torpor/protocol';
import { reserve, type SealPlan, seal } from '../acts/seal.ts';
import { start } from '../acts/start.ts';
import { openTrafficGate } from '../acts/traffic-gate.ts';
import { type Context, take } from '../context.ts';
import { endOperation, FenceLost, type Operation } from '../operations/operation.ts';
import { commit, type OperationHandle } from '../operations/operation-handle.ts';
import { ConstraintViolation, type Transaction } from '../ports/database.ts';
import type { Sandbox } from '../sandbox.ts';
import { stepResuming } from './resume.ts';

/** The part of the accepting transaction: the checkpoint's row, and `pausing` unless it is done in place. */
export async function claimSeal(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  operation: Operation,
  plan: Pick<SealPlan, 'checkpointId' | 'mode' | 'reason' | 'afterwards'>,
): Promise<Sandbox> {
  await reserve(ctx, tx, sandbox, operation, plan.checkpointId);
  if (plan.afterwards === 'continue') return sandbox;
  const { reason, mode } = plan;
  return take(ctx, tx, sandbox, 'pause', 'sandbox.pausing', { reason, mode }, { operationId: operation.id });
}

export async function sealAndStart(
  ctx: Context,
  handle: OperationHandle,
  sandbox: Sandbox,
  plan: SealPlan,
): Promise<void> {
  await seal(ctx, handle, sandbox, plan);
  if (plan.afterwards === 'start') await startPaused(ctx, handle, plan.reason);
}

/** Goes on to the start; also for an operation whose server died between the two. */
export async function startPaused(ctx: Context, handle: OperationHandle, reason: Reason): Promise<void> {
  const { operation } = handle;
  let resuming: Sandbox;
  try {
    resuming = await commit(ctx, operation, (tx, paused) => stepResuming(ctx, tx, paused, operation, reason));
  } catch (thrown) {
    if (thrown instanceof FenceLost) throw thrown;
    await stayPaused(ctx, operation, thrown);
    return openTrafficGate(ctx, operation.sandboxId);
  }
  await start(ctx, handle, resuming);
}

/** The checkpoint to start from may have gone while the sandbox was being sealed; it stays where it is then. */
async function stayPaused(ctx: Context, operation: Operation, thrown: unknown): Promise<void> {
  const error =
    thrown instanceof ConstraintViolation
      ? new TorporError(
          'expired',
          'The checkpoint to go back to was deleted meanwhile; the sandbox is paused.',
        )
      : TorporError.from(thrown);
  await commit(ctx, operation, (tx) =>
    endOperation(tx, operation, ctx.clock.now(), { outcome: 'failed', error }),
  );
}

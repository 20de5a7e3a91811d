/**
 * What snapshot, fork and rollback share: seal a running sandbox and have it running afterwards, either
 * in place or, where the runtime cannot do that or another checkpoint is wanted, by a pause and a start.
 */
import type { Reason } from '@torpor/protocol';
import { reserve, type SealPlan, seal } from '../acts/seal.ts';
import { start } from '../acts/start.ts';
import { type Context, take } from '../context.ts';
import { commit, type Held } from '../operations/held.ts';
import type { Operation } from '../operations/operation.ts';
import type { Transaction } from '../ports/database.ts';
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
  held: Held,
  sandbox: Sandbox,
  plan: SealPlan,
): Promise<void> {
  await seal(ctx, held, sandbox, plan);
  if (plan.afterwards === 'pause') await startPaused(ctx, held, plan.reason);
}

/** Goes on to the start; also for an operation whose server died between the two. */
export async function startPaused(ctx: Context, held: Held, reason: Reason): Promise<void> {
  const resuming = await commit(ctx, held.operation, (tx, paused) =>
    stepResuming(ctx, tx, paused, held.operation, reason),
  );
  await start(ctx, held, resuming);
}

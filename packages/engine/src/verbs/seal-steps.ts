/**
 * What pause, snapshot, fork and rollback share around a seal: the claim in the accepting transaction, and what
 * happens to the sandbox after the commit.
 */
import { type Reason, TorporError } from '@torpor/protocol';
import { continueAfterSeal, reserve, type SealPlan } from '../acts/seal.ts';
import { start } from '../acts/start.ts';
import { openTrafficGate } from '../acts/traffic-gate.ts';
import { type Context, requirePause, take } from '../context.ts';
import { endOperation, FenceLost, type Operation } from '../operations/operation.ts';
import { commit, type OperationHandle, passFaultPoint } from '../operations/operation-handle.ts';
import { ConstraintViolation, type Transaction } from '../ports/database.ts';
import type { Runtime } from '../ports/runtime.ts';
import type { Sandbox } from '../sandbox.ts';
import { stepResuming } from './resume.ts';

/** The runtime's capability is asked before anything is written: what cannot be paused is never recorded as paused. */
export function sealMode(
  runtime: Runtime,
  wanted: 'memory' | 'files' | undefined,
  what: string,
): 'memory' | 'files' {
  const best = requirePause(runtime, what);
  if (wanted === 'memory' && best === 'files') {
    throw new TorporError('capability_unsupported', `The runtime "${runtime.name}" keeps files, not memory.`);
  }
  return wanted ?? best;
}

/** Part of the accepting transaction: the checkpoint's row, and the state `pausing` unless the seal is in place. */
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

/** What follows the commit of a seal. A sandbox that is started at once keeps its gate closed until it runs. */
export async function goOnAfterSeal(
  ctx: Context,
  handle: OperationHandle,
  sandbox: Sandbox,
  plan: Pick<SealPlan, 'afterwards' | 'checkpointId' | 'reason'>,
): Promise<void> {
  const { operation } = handle;
  await passFaultPoint(ctx, operation, 'seal-committed');
  switch (plan.afterwards) {
    case 'pause':
      return openTrafficGate(ctx, sandbox.id);
    case 'continue':
      return continueAfterSeal(ctx, operation, sandbox, plan.checkpointId);
    case 'start':
      return startPaused(ctx, handle, plan.reason);
  }
}

/** Starts the sandbox that the same operation has just paused; also after that operation's server died. */
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

/** The checkpoint to start from may have been deleted during the seal; the sandbox stays paused then. */
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

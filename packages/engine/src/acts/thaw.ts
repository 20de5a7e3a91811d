/** Thaws a frozen sandbox: after a seal in place, and when a seal is undone. */
import type { CheckpointId, TorporError } from '@torpor/protocol';
import { findCheckpoint, findWriting, markDeleted } from '../checkpoints/checkpoint.ts';
import { type Context, runtimeOf } from '../context.ts';
import { applyTransition, recordEvent } from '../ledger/transition.ts';
import { endOperation, type Operation, requireFence } from '../operations/operation.ts';
import { fencedTransaction, passFaultPoint } from '../operations/operation-handle.ts';
import type { Sandbox } from '../sandbox.ts';
import { withTimeout } from '../with-timeout.ts';
import { openTrafficGate } from './traffic-gate.ts';

/**
 * Returns whether the thaw succeeded; otherwise the reconciler finds the frozen instance and tries again. The runtime
 * gets the checkpoint that this run has sealed, whose layers must not change. The caller checks the fence where another
 * server may have taken over meanwhile.
 */
export async function thaw(ctx: Context, sandbox: Sandbox): Promise<boolean> {
  const instance = { sandboxId: sandbox.id, generation: sandbox.generation };
  try {
    const last =
      sandbox.checkpointId === null ? undefined : await findCheckpoint(ctx.db, sandbox.checkpointId);
    const sealed = last?.generation === sandbox.generation ? last.id : null;
    await withTimeout(ctx.clock, ctx.settings.callMs, 'Thawing', (callSignal) =>
      runtimeOf(ctx, sandbox).thaw(instance, sealed, callSignal),
    );
    return true;
  } catch (thrown) {
    ctx.report('thaw failed', { ...instance, error: thrown });
    return false;
  }
}

/** Thaws a sandbox that was sealed in place. The operation ends after the thaw, so that no other operation begins earlier. */
export async function thawAfterSeal(
  ctx: Context,
  operation: Operation,
  sandbox: Sandbox,
  checkpointId: CheckpointId,
): Promise<void> {
  await thaw(ctx, { ...sandbox, checkpointId });
  ctx.jobWatch.begin(sandbox.id);
  await passFaultPoint(ctx, operation, 'seal-thawed');
  await fencedTransaction(ctx, operation, (tx) =>
    endOperation(tx, operation, ctx.clock.now(), { outcome: 'succeeded', result: { checkpointId } }),
  );
  await openTrafficGate(ctx, sandbox.id);
}

/**
 * Thaws, opens the traffic gate and ends the operation with the cause; also for a seal whose server died before
 * the commit. Only connections are lost: they were reset before.
 */
export async function undoSeal(
  ctx: Context,
  operation: Operation,
  sandbox: Sandbox,
  error: TorporError,
): Promise<void> {
  // A late thaw would let processes run in the middle of a later seal.
  await requireFence(ctx.db, operation);
  const thawed = await thaw(ctx, sandbox);
  ctx.jobWatch.begin(sandbox.id);
  await openTrafficGate(ctx, sandbox.id);
  await fencedTransaction(ctx, operation, async (tx, locked) => {
    const now = ctx.clock.now();
    for (const unfinished of await findWriting(tx, operation.id)) await markDeleted(tx, unfinished.id, now);
    await endOperation(tx, operation, now, { outcome: 'failed', error });
    const evidence = thawed ? 'running' : 'unknown';
    const extras = { operationId: operation.id, change: { evidence, observedAt: now } } as const;
    if (locked.state === 'pausing') {
      const { code, message } = error;
      await applyTransition(
        ctx,
        tx,
        locked,
        'seal_failed',
        'sandbox.pause_failed',
        { error: { code, message } },
        extras,
      );
    } else {
      const data = { kind: operation.kind, phase: 'rolled back', detail: error.message };
      await recordEvent(ctx, tx, locked, 'operation.phase', data, extras);
    }
  });
}

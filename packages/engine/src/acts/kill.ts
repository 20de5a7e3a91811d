/** Ends a sandbox: its instance is destroyed, then its state is `killed`. */
import { TorporError } from '@torpor/protocol';
import { type Context, runtimeOf } from '../context.ts';
import { deleteActivity } from '../idleness.ts';
import { jobsAtEnd } from '../jobs/follow.ts';
import { applyTransition } from '../ledger/transition.ts';
import { endOperation, FenceLost } from '../operations/operation.ts';
import { fencedTransaction, type OperationHandle, passFaultPoint } from '../operations/operation-handle.ts';
import type { Sandbox } from '../sandbox.ts';
import { withTimeout } from '../with-timeout.ts';
import { abortAndOpenTrafficGate, openTrafficGate } from './traffic-gate.ts';

/**
 * Drives a sandbox that is `killing`. When the runtime fails, the sandbox stays `killing` and the reconciler tries
 * again: a failed destroy never makes the row say that the instance is gone (R81).
 */
export async function kill(ctx: Context, handle: OperationHandle, sandbox: Sandbox): Promise<void> {
  const { operation, signal, trace } = handle;
  try {
    ctx.jobWatch.end(sandbox.id);
    await passFaultPoint(ctx, operation, 'kill-accepted');
    trace.enter('destroy');
    const upTo = { sandboxId: sandbox.id, generation: sandbox.generation };
    await withTimeout(
      ctx.clock,
      ctx.settings.callMs,
      'Destroying',
      (callSignal) => runtimeOf(ctx, sandbox).destroy(upTo, callSignal),
      signal,
    );
    await passFaultPoint(ctx, operation, 'kill-destroyed');
  } catch (thrown) {
    if (thrown instanceof FenceLost) throw thrown;
    const error = TorporError.from(thrown);
    trace.fail(error);
    await fencedTransaction(ctx, operation, (tx) =>
      endOperation(tx, operation, ctx.clock.now(), { outcome: 'failed', error }),
    );
    return openTrafficGate(ctx, sandbox.id);
  }
  trace.enter('commit');
  await fencedTransaction(ctx, operation, async (tx, locked) => {
    const now = ctx.clock.now();
    await deleteActivity(tx, locked.id);
    await endOperation(tx, operation, now, { outcome: 'succeeded', result: {} });
    const change = { endsAt: null, evidence: 'ledger', observedAt: now } as const;
    const jobEvents = await jobsAtEnd(ctx, tx, locked, 'sandbox_killed', operation.id);
    const fields = { operationId: operation.id, baseId: null, checkpointId: null, change, jobEvents };
    await applyTransition(ctx, tx, locked, 'destroyed', 'sandbox.killed', {}, fields);
  });
  await passFaultPoint(ctx, operation, 'kill-committed');
  trace.enter('open');
  await abortAndOpenTrafficGate(ctx, sandbox.id);
}

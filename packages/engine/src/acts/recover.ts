/**
 * Recovers what a dead instance left: its writable files become a checkpoint marked `recovered`, and the sandbox is
 * paused. The sandbox is lost only when no usable checkpoint of its own is left.
 */
import { type CheckpointId, type Loss, type SandboxState, TorporError } from '@torpor/protocol';
import {
  findCheckpoint,
  findWriting,
  markDeleted,
  markSealed,
  type SealResult,
} from '../checkpoints/checkpoint.ts';
import { type Context, runtimeOf } from '../context.ts';
import { deleteActivity } from '../idleness.ts';
import { jobsAtEnd } from '../jobs/follow.ts';
import { applyTransition } from '../ledger/transition.ts';
import { type Ending, endOperation, FenceLost, type Operation } from '../operations/operation.ts';
import { fencedTransaction, type OperationHandle } from '../operations/operation-handle.ts';
import type { Transaction } from '../ports/database.ts';
import type { Observation } from '../ports/runtime.ts';
import type { Sandbox } from '../sandbox.ts';
import { withTimeout } from '../with-timeout.ts';
import { sealInStore } from './seal.ts';
import { insertCheckpointRow } from './seal-plan.ts';
import { abortAndOpenTrafficGate, openTrafficGate } from './traffic-gate.ts';

type Gone = Extract<Observation, { is: 'gone' }>;

/** For a sandbox that should run and whose instance is proved gone. Ends the operation. */
export async function recover(
  ctx: Context,
  handle: OperationHandle,
  sandbox: Sandbox,
  found: Gone,
): Promise<void> {
  const { operation, trace } = handle;
  trace.enter('recover');
  ctx.jobWatch.end(sandbox.id);
  let recovered: { readonly id: CheckpointId; readonly sealed: SealResult } | null = null;
  if (found.files) {
    try {
      recovered = await recoverFiles(ctx, handle, sandbox);
    } catch (thrown) {
      if (thrown instanceof FenceLost) throw thrown;
      trace.fail(thrown);
      // The files exist, so the sandbox is not given up: the next round tries again.
      await endForRetry(ctx, operation, TorporError.from(thrown));
      return openTrafficGate(ctx, sandbox.id);
    }
  }
  await fencedTransaction(ctx, operation, async (tx, locked) => {
    const now = ctx.clock.now();
    await deleteActivity(tx, locked.id);
    const outcome = {
      outcome: 'succeeded',
      result: { checkpointId: recovered?.id ?? locked.checkpointId },
    } as const;
    if (recovered !== null) {
      await markSealed(
        tx,
        recovered.id,
        recovered.sealed,
        { recovered: true, kept: false, expiresAt: null },
        now,
      );
      await end(ctx, tx, operation, outcome);
      await stepRecovered(ctx, tx, locked, operation, found, recovered.id, ['processes', 'connections']);
      return;
    }
    await dropUnfinished(ctx, tx, operation);
    await end(ctx, tx, operation, outcome);
    if (locked.checkpointId === null) {
      const reason = `${found.why}, nothing of its files is left and it was never paused`;
      const change = { reason, lost: ['processes', 'files'], evidence: 'gone', observedAt: now } as const;
      const data = { reason, previousState: locked.state };
      await applyTransition(ctx, tx, locked, 'lost', 'sandbox.lost', data, {
        operationId: operation.id,
        baseId: null,
        change,
        jobEvents: await jobsAtEnd(ctx, tx, locked, 'sandbox_lost', operation.id),
      });
      return;
    }
    await stepRecovered(ctx, tx, locked, operation, found, locked.checkpointId, [
      'processes',
      'files',
      'connections',
    ]);
  });
  await abortAndOpenTrafficGate(ctx, sandbox.id);
}

/** When another operation than a recovery found the instance gone, that operation fails: it did not do its work. */
async function end(
  ctx: Context,
  tx: Transaction,
  operation: Operation,
  outcome: Ending<'recover'>,
): Promise<void> {
  if (operation.kind === 'recover') return endOperation(tx, operation, ctx.clock.now(), outcome);
  const error = new TorporError(
    'conflict',
    `The sandbox's processes were gone before the ${operation.kind} was done.`,
  );
  return endOperation(tx, operation, ctx.clock.now(), { outcome: 'failed', error });
}

async function recoverFiles(
  ctx: Context,
  handle: OperationHandle,
  sandbox: Sandbox,
): Promise<{ readonly id: CheckpointId; readonly sealed: SealResult }> {
  const id = ctx.ids.next('ckpt');
  const instance = { sandboxId: sandbox.id, generation: sandbox.generation };
  await fencedTransaction(ctx, handle.operation, async (tx, locked) => {
    await dropUnfinished(ctx, tx, handle.operation);
    await insertCheckpointRow(ctx, tx, locked, handle.operation, id);
  });
  const sealed = await withTimeout(
    ctx.clock,
    ctx.settings.callMs,
    'Recovering files',
    async (callSignal) => {
      const staging = await ctx.store.stage(id, callSignal);
      const captured = await runtimeOf(ctx, sandbox).recoverFiles(instance, staging, callSignal);
      return sealInStore(ctx, staging, captured, sandbox, callSignal);
    },
    handle.signal,
  );
  return { id, sealed };
}

async function dropUnfinished(ctx: Context, tx: Transaction, operation: Operation): Promise<void> {
  for (const unfinished of await findWriting(tx, operation.id))
    await markDeleted(tx, unfinished.id, ctx.clock.now());
}

async function stepRecovered(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  operation: Operation,
  found: Gone,
  checkpointId: CheckpointId,
  lost: Loss[],
): Promise<void> {
  const checkpoint = await findCheckpoint(tx, checkpointId);
  const previousState: SandboxState = sandbox.state;
  const jobEvents = await jobsAtEnd(ctx, tx, sandbox, 'crash', operation.id);
  await applyTransition(
    ctx,
    tx,
    sandbox,
    'recovered',
    'sandbox.recovered',
    {
      reason: 'reconcile',
      found: found.why,
      previousState,
      parentId: checkpoint?.parentId ?? null,
      location: checkpoint?.location ?? '',
      bytes: checkpoint?.bytes ?? 0,
      parts: checkpoint?.parts ?? { files: true, memory: false },
      lost,
    },
    {
      operationId: operation.id,
      checkpointId,
      baseId: checkpointId,
      jobEvents,
      change: { endsAt: null, lost, reason: found.why, evidence: 'gone', observedAt: ctx.clock.now() },
    },
  );
}

async function endForRetry(ctx: Context, operation: Operation, error: TorporError): Promise<void> {
  await fencedTransaction(ctx, operation, async (tx, sandbox) => {
    const now = ctx.clock.now();
    await dropUnfinished(ctx, tx, operation);
    await endOperation(tx, operation, now, { outcome: 'failed', error });
    if (sandbox.state !== 'pausing') return;
    const { code, message } = error;
    const extras = { operationId: operation.id, change: { evidence: 'gone', observedAt: now } } as const;
    await applyTransition(
      ctx,
      tx,
      sandbox,
      'seal_failed',
      'sandbox.pause_failed',
      { error: { code, message } },
      extras,
    );
  });
}

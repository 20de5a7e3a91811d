/**
 * Snapshot: a checkpoint of a sandbox that goes on afterwards. Where the runtime cannot seal it in place, the sandbox is
 * paused and started again, and stays paused when that start fails. A paused sandbox keeps the checkpoint that it has.
 */
import {
  type CheckpointView,
  type OperationId,
  type SandboxId,
  type SnapshotRequest,
  TorporError,
} from '@torpor/protocol';
import { finishSeal } from '../acts/finish-seal.ts';
import { beginSeal, seal } from '../acts/seal.ts';
import { type ContinuingSealPlan, noExtraWrites, type SealPlan, sealMode } from '../acts/seal-plan.ts';
import { nameCheckpoint, refuseTakenName } from '../checkpoints/checkpoint.ts';
import { requireAttachedReplayable } from '../checkpoints/forkable.ts';
import { type Context, runtimeOf } from '../context.ts';
import { refusalForDiskSpace } from '../disk/disk-space.ts';
import { recordEvent } from '../ledger/transition.ts';
import { endOperation, type Operation } from '../operations/operation.ts';
import type { Caller } from '../operations/operations.ts';
import { requireQuota } from '../orgs/quota.ts';
import type { Transaction } from '../ports/database.ts';
import type { Runtime } from '../ports/runtime.ts';
import { checkpoint } from '../queries/checkpoints.ts';
import { markUsed } from '../retention/policy.ts';
import { getSandbox, type Sandbox } from '../sandbox.ts';
import type { Guard } from './pause.ts';

export async function snapshot(
  ctx: Context,
  caller: Caller,
  sandboxId: SandboxId,
  request: SnapshotRequest = {},
): Promise<{ readonly operation: { readonly id: OperationId }; readonly checkpoint: CheckpointView }> {
  const { runtime } = await getSandbox(ctx.db, sandboxId, caller.org);
  const { name = null, expiresInSeconds } = request;
  const plan: ContinuingSealPlan = {
    ...planSnapshot(ctx, runtimeOf(ctx, { runtime })),
    kept: true,
    name,
    expiresAt: expiresInSeconds === undefined ? null : ctx.clock.now() + expiresInSeconds * 1_000,
    extraWrites: noExtraWrites,
  };
  const full = await refusalForDiskSpace(ctx);
  const operation = await ctx.operations.run({
    kind: 'snapshot',
    sandboxId,
    caller,
    request,
    reason: 'snapshot',
    onAccept: async (tx, sandbox, operation) => {
      if (sandbox.state === 'paused') {
        await keepAttached(ctx, tx, sandbox, operation, plan);
        return 'ended';
      }
      // The commit checks the name again; this check saves the freeze.
      if (name !== null) await refuseTakenName(tx, sandbox.id, name);
      if (full !== undefined) throw full;
      await requireQuota(tx, sandbox.org, { checkpoint: true }, sandbox);
      return beginSeal(ctx, tx, sandbox, operation, plan);
    },
    execute: async (handle, accepted) => {
      if (accepted === 'ended') return;
      const sealed = await seal(ctx, handle, accepted, plan);
      if (sealed.is === 'sealed') await finishSeal(ctx, handle, accepted, plan);
    },
  });
  return { operation, checkpoint: await checkpoint(ctx, caller.org, operation.result.checkpointId) };
}

/** For the round that bounds what a running sandbox can lose. The checkpoint is not kept: the next one replaces it. */
export async function snapshotByPolicy(
  ctx: Context,
  { id, org, runtime }: Pick<Sandbox, 'id' | 'org' | 'runtime'>,
  guard: Guard,
): Promise<void> {
  const plan: ContinuingSealPlan = {
    ...planSnapshot(ctx, runtimeOf(ctx, { runtime })),
    kept: false,
    name: null,
    expiresAt: null,
    extraWrites: noExtraWrites,
  };
  await ctx.operations.run({
    kind: 'snapshot',
    sandboxId: id,
    caller: { org },
    request: {},
    reason: 'snapshot',
    onAccept: async (tx, sandbox, operation) => {
      await guard(tx, sandbox);
      return beginSeal(ctx, tx, sandbox, operation, plan);
    },
    execute: async (handle, accepted) => {
      const sealed = await seal(ctx, handle, accepted, plan);
      if (sealed.is === 'sealed') await finishSeal(ctx, handle, accepted, plan);
    },
  });
}

/** A snapshot in place where the runtime can make one, otherwise by a pause and a start. */
export function planSnapshot(
  ctx: Context,
  runtime: Runtime,
): Pick<ContinuingSealPlan, 'checkpointId' | 'mode' | 'reason' | 'afterwards' | 'filesOnlyFallback'> {
  const { snapshotWhileRunning: inPlace, replayable } = runtime.capabilities();
  if (!inPlace && !replayable) {
    throw new TorporError(
      'capability_unsupported',
      `The runtime "${runtime.name}" uses a checkpoint up when the sandbox goes on, so it cannot keep one.`,
    );
  }
  return {
    checkpointId: ctx.ids.next('ckpt'),
    mode: sealMode(runtime, undefined, 'be snapshotted'),
    reason: 'snapshot',
    afterwards: inPlace ? 'runs on' : 'restarts',
    filesOnlyFallback: 'never',
  };
}

/** Keeps and names the checkpoint that a paused sandbox has already, and ends the operation. */
async function keepAttached(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  operation: Operation,
  { name, expiresAt }: SealPlan,
): Promise<void> {
  const { checkpointId } = sandbox;
  if (checkpointId === null) throw new Error('A paused sandbox has no checkpoint.');
  // A checkpoint that the next start uses up cannot be kept.
  await requireAttachedReplayable(tx, sandbox);
  const now = ctx.clock.now();
  await tx.query(
    'UPDATE checkpoints SET kept = 1, expires_at = $2, expiry_announced_at = NULL WHERE id = $1',
    [checkpointId, expiresAt],
  );
  await markUsed(tx, sandbox.id, now);
  if (name !== null) await nameCheckpoint(tx, sandbox.id, checkpointId, name, now);
  await endOperation(tx, operation, now, { outcome: 'succeeded', result: { checkpointId } });
  if (name !== null) {
    await recordEvent(
      ctx,
      tx,
      sandbox,
      'checkpoint.named',
      { checkpointId, name },
      { operationId: operation.id },
    );
  }
}

/** Snapshot: a checkpoint of a sandbox that goes on as it was. */
import { type CheckpointId, type SandboxId, type SnapshotRequest, TorporError } from '@torpor/protocol';
import type { SealPlan } from '../acts/seal.ts';
import { nameCheckpoint, refuseTakenName } from '../checkpoints/checkpoint.ts';
import { requireReplayable } from '../checkpoints/forkable.ts';
import { type Context, note, runtimeOf } from '../context.ts';
import { refusalForDiskSpace } from '../disk/disk-space.ts';
import { endOperation, type Operation } from '../operations/operation.ts';
import type { Caller } from '../operations/operations.ts';
import { requireQuota } from '../orgs/quota.ts';
import type { Transaction } from '../ports/database.ts';
import type { Runtime } from '../ports/runtime.ts';
import { markUsed } from '../retention/policy.ts';
import { getSandbox, type Sandbox } from '../sandbox.ts';
import { sealMode, unlessSealFails } from './pause.ts';
import { claimSeal, sealAndStart } from './seal-and-start.ts';

export async function snapshot(
  ctx: Context,
  caller: Caller,
  sandboxId: SandboxId,
  request: SnapshotRequest,
): Promise<{ readonly checkpointId: CheckpointId; readonly operation: Operation }> {
  const { runtime: runtimeName } = await getSandbox(ctx.db, sandboxId, caller.org);
  const runtime = runtimeOf(ctx, { runtime: runtimeName });
  const name = request.name ?? null;
  const { expiresInSeconds } = request;
  const plan = planSnapshot(ctx, runtime, {
    name,
    kept: true,
    expiresAt: expiresInSeconds === undefined ? null : ctx.clock.now() + expiresInSeconds * 1_000,
  });
  const full = await refusalForDiskSpace(ctx);
  let claimed: Sandbox | undefined;
  const accepted = await ctx.operations.accept(
    { kind: 'snapshot', sandboxId, caller, request, reason: 'snapshot' },
    async (tx, sandbox, operation) => {
      if (sandbox.state === 'paused') return keepAttached(ctx, tx, sandbox, operation, plan);
      // Asked here as well, so that a name that is taken does not cost a freeze.
      if (name !== null) await refuseTakenName(tx, sandbox.id, name);
      if (full !== undefined) throw full;
      await requireQuota(tx, sandbox.org, { checkpoint: true }, sandbox);
      claimed = await claimSeal(ctx, tx, sandbox, operation, plan);
    },
    async (handle) => {
      const sandbox = claimed;
      if (sandbox !== undefined) await unlessSealFails(() => sealAndStart(ctx, handle, sandbox, plan));
    },
  );
  if (accepted.is === 'already') throw new Error('A snapshot is never already there.');
  const operation = await ctx.operations.finished(accepted.operationId, caller.signal);
  return { checkpointId: operation.result?.['checkpointId'] as CheckpointId, operation };
}

/** A snapshot in place where the runtime can, else by a pause and a start. */
export function planSnapshot(
  ctx: Context,
  runtime: Runtime,
  wanted: Pick<SealPlan, 'name' | 'kept' | 'expiresAt' | 'also'>,
): SealPlan {
  const { snapshotWhileRunning: inPlace, replayable } = runtime.capabilities();
  if (!inPlace && !replayable) {
    throw new TorporError(
      'capability_unsupported',
      `The runtime "${runtime.name}" uses a checkpoint up when the sandbox goes on, so it cannot keep one.`,
    );
  }
  const checkpointId = ctx.ids.next('ckpt');
  return {
    checkpointId,
    mode: sealMode(runtime, undefined, 'be snapshotted'),
    reason: 'snapshot',
    afterwards: inPlace ? 'continue' : 'start',
    kept: wanted.kept,
    name: wanted.name,
    expiresAt: wanted.expiresAt,
    also: async (tx, sandbox, operation) => {
      if (wanted.name !== null)
        await nameCheckpoint(tx, sandbox.id, checkpointId, wanted.name, ctx.clock.now());
      await wanted.also?.(tx, sandbox, operation);
    },
  };
}

/** A paused sandbox has its checkpoint already; it is kept, and gets the name. */
async function keepAttached(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  operation: Operation,
  { name, expiresAt }: SealPlan,
): Promise<void> {
  const checkpointId = sandbox.checkpointId;
  if (checkpointId === null) throw new Error('A paused sandbox has no checkpoint.');
  // One that the next start uses up cannot be kept.
  await requireReplayable(tx, sandbox);
  const now = ctx.clock.now();
  await tx.query(
    'UPDATE checkpoints SET kept = 1, expires_at = $2, expiry_announced_at = NULL WHERE id = $1',
    [checkpointId, expiresAt],
  );
  await markUsed(tx, sandbox.id, now);
  if (name !== null) await nameCheckpoint(tx, sandbox.id, checkpointId, name, now);
  await endOperation(tx, operation, now, { outcome: 'succeeded', result: { checkpointId } });
  if (name !== null) {
    await note(ctx, tx, sandbox, 'checkpoint.named', { checkpointId, name }, { operationId: operation.id });
  }
}

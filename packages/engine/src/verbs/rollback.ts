/**
 * Rollback: a sandbox goes back to an earlier checkpoint, in place. A running sandbox is sealed first, so that
 * nothing is lost when the rollback fails or was a mistake.
 */
import type { RollbackRequest, SandboxId } from '@torpor/protocol';
import { finishSeal } from '../acts/finish-seal.ts';
import { beginSeal, seal } from '../acts/seal.ts';
import { type ContinuingSealPlan, noExtraWrites, sealMode } from '../acts/seal-plan.ts';
import { requireStartableBy } from '../acts/sources.ts';
import { beginResume, start } from '../acts/start.ts';
import { getSealed } from '../checkpoints/checkpoint.ts';
import { type Context, runtimeOf } from '../context.ts';
import { reserve } from '../nodes/reservation.ts';
import type { RequestOf } from '../operations/operation-kinds.ts';
import type { Caller } from '../operations/operations.ts';
import { requireQuota, wokenSandbox } from '../orgs/quota.ts';
import { getSandbox } from '../sandbox.ts';
import { type Restarted, restartedBy } from './resume.ts';

export async function rollback(
  ctx: Context,
  caller: Caller,
  sandboxId: SandboxId,
  { checkpointId }: RollbackRequest,
): Promise<Restarted> {
  const { runtime, org } = await getSandbox(ctx.db, sandboxId, caller.org);
  // Only this checkpoint, by its memory or by its files: another checkpoint is not what the caller asked for.
  const request: RequestOf<'rollback'> = { from: checkpointId, fallback: ['files'] };
  const replayed = await ctx.operations.replayed(caller, 'rollback', sandboxId, request);
  if (replayed !== undefined) return restartedBy(ctx, replayed);
  requireStartableBy(await getSealed(ctx.db, checkpointId, org), runtime);
  const plan: ContinuingSealPlan = {
    checkpointId: ctx.ids.next('ckpt'),
    mode: sealMode(runtimeOf(ctx, { runtime }), undefined, 'be rolled back'),
    reason: 'rollback',
    afterwards: 'restarts',
    kept: false,
    name: null,
    expiresAt: null,
    filesOnlyFallback: 'never',
    extraWrites: noExtraWrites,
  };
  const operation = await ctx.operations.run({
    kind: 'rollback',
    sandboxId,
    caller,
    request,
    reason: 'rollback',
    onAccept: async (tx, sandbox, operation) => {
      if (sandbox.state === 'running') return beginSeal(ctx, tx, sandbox, operation, plan);
      await requireQuota(tx, org, wokenSandbox(sandbox), sandbox);
      const { memoryMb, checkpointId: asleepIn } = sandbox;
      await reserve(ctx, tx, { memoryMb, what: 'wake', checkpointId: asleepIn });
      return beginResume(ctx, tx, sandbox, operation, 'rollback');
    },
    execute: async (handle, accepted) => {
      if (accepted.state === 'resuming') return start(ctx, handle, accepted);
      const sealed = await seal(ctx, handle, accepted, plan);
      if (sealed.is === 'sealed') await finishSeal(ctx, handle, accepted, plan);
    },
  });
  return restartedBy(ctx, operation);
}

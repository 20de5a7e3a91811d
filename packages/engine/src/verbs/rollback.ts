/**
 * Rollback: a sandbox goes back to an earlier checkpoint, in place. A running one is sealed first, so
 * that a rollback that fails, or was a mistake, has lost nothing.
 */
import type { RollbackRequest, SandboxId } from '@torpor/protocol';
import type { SealPlan } from '../acts/seal.ts';
import { requireStartable } from '../acts/sources.ts';
import { start } from '../acts/start.ts';
import { getSealed } from '../checkpoints/checkpoint.ts';
import { type Context, runtimeOf } from '../context.ts';
import type { Caller } from '../operations/operations.ts';
import { requireQuota, wokenSandbox } from '../orgs/quota.ts';
import { getSandbox, type Sandbox } from '../sandbox.ts';
import { sealMode, unlessSealFails } from './pause.ts';
import { type Resumed, resumedBy, stepResuming } from './resume.ts';
import { claimSeal, sealAndStart } from './seal-and-start.ts';

export async function rollback(
  ctx: Context,
  caller: Caller,
  sandboxId: SandboxId,
  request: RollbackRequest,
): Promise<Resumed> {
  const { runtime: name, org } = await getSandbox(ctx.db, sandboxId, caller.org);
  // Only this checkpoint, by its memory or by its files: another one is not what was asked for.
  const wanted = { from: request.checkpointId, fallback: ['files'] };
  const replayed = await ctx.operations.replay(caller, 'rollback', sandboxId, wanted);
  if (replayed !== undefined)
    return resumedBy(sandboxId, await ctx.operations.finished(replayed, caller.signal));
  const target = await getSealed(ctx.db, request.checkpointId, org);
  requireStartable(target, name);
  const runtime = runtimeOf(ctx, { runtime: name });
  const plan: SealPlan = {
    checkpointId: ctx.ids.next('ckpt'),
    mode: sealMode(runtime, undefined, 'be rolled back'),
    reason: 'rollback',
    afterwards: 'start',
    kept: false,
    name: null,
    expiresAt: null,
  };
  let running: Sandbox | undefined;
  let paused: Sandbox | undefined;
  const accepted = await ctx.operations.accept(
    { kind: 'rollback', sandboxId, caller, request: wanted, reason: 'rollback' },
    async (tx, sandbox, operation) => {
      if (sandbox.state === 'running') running = await claimSeal(ctx, tx, sandbox, operation, plan);
      else {
        await requireQuota(tx, org, wokenSandbox(sandbox), sandbox);
        paused = await stepResuming(ctx, tx, sandbox, operation, 'rollback');
      }
    },
    async (handle) => {
      const [sealed, resuming] = [running, paused];
      if (sealed !== undefined) await unlessSealFails(() => sealAndStart(ctx, handle, sealed, plan));
      if (resuming !== undefined) await start(ctx, handle, resuming);
    },
  );
  if (accepted.is === 'already') throw new Error('A rollback is never already there.');
  return resumedBy(sandboxId, await ctx.operations.finished(accepted.operationId, caller.signal));
}

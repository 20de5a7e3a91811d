/**
 * Rollback: a sandbox goes back to an earlier checkpoint, in place. A running one is sealed first, so
 * that a rollback that fails, or was a mistake, has lost nothing.
 */
import { type RollbackRequest, type SandboxId, TorporError } from '@torpor/protocol';
import type { SealPlan } from '../acts/seal.ts';
import { start } from '../acts/start.ts';
import { getSealed } from '../checkpoints/checkpoint.ts';
import { type Context, runtimeOf } from '../context.ts';
import type { Caller, Desk } from '../operations/desk.ts';
import { getSandbox, type Sandbox } from '../sandbox.ts';
import { sealMode, unlessSealFails } from './pause.ts';
import { type Resumed, stepResuming } from './resume.ts';
import { claimSeal, sealAndStart } from './seal-and-start.ts';

export async function rollback(
  ctx: Context,
  desk: Desk,
  caller: Caller,
  sandboxId: SandboxId,
  request: RollbackRequest,
): Promise<Resumed> {
  const { runtime: name, org } = await getSandbox(ctx.db, sandboxId, caller.org);
  const target = await getSealed(ctx.db, request.checkpointId, org);
  const runtime = runtimeOf(ctx, { runtime: name });
  if (!target.replayable || target.runtime !== name) {
    throw new TorporError(
      'capability_unsupported',
      `The sandbox cannot be started from checkpoint ${target.id}.`,
      {
        checkpointId: target.id,
      },
    );
  }
  const plan: SealPlan = {
    checkpointId: ctx.ids.next('ckpt'),
    mode: sealMode(runtime, undefined, 'be rolled back'),
    reason: 'rollback',
    afterwards: 'pause',
    name: null,
    expiresAt: null,
    last: false,
  };
  let running: Sandbox | undefined;
  let paused: Sandbox | undefined;
  const accepted = await desk.accept(
    // Only this checkpoint, by its memory or by its files: another one is not what was asked for.
    {
      kind: 'rollback',
      sandboxId,
      caller,
      request: { from: target.id, fallback: ['files'] },
      reason: 'rollback',
    },
    async (tx, sandbox, operation) => {
      if (sandbox.state === 'running') running = await claimSeal(ctx, tx, sandbox, operation, plan);
      else paused = await stepResuming(ctx, tx, sandbox, operation, 'rollback');
    },
    async (held) => {
      const [sealed, resuming] = [running, paused];
      if (sealed !== undefined) await unlessSealFails(() => sealAndStart(ctx, held, sealed, plan));
      if (resuming !== undefined) await start(ctx, held, resuming);
    },
  );
  if (accepted.is === 'already') throw new Error('A rollback is never already there.');
  const operation = await desk.finished(accepted.operationId, caller.signal);
  return { ...(operation.result as unknown as Pick<Resumed, 'source' | 'lost'>), sandboxId, operation };
}

/** Resume: a paused sandbox runs again. */
import type { CheckpointId, Loss, Reason, ResumeRequest, SandboxId, SourceKind } from '@torpor/protocol';
import { TorporError } from '@torpor/protocol';
import { start } from '../acts/start.ts';
import { getSealed } from '../checkpoints/checkpoint.ts';
import { type Context, take } from '../context.ts';
import type { Caller, Desk } from '../operations/desk.ts';
import { findLastDone, type Operation } from '../operations/operation.ts';
import type { Transaction } from '../ports/database.ts';
import { getSandbox, type Sandbox } from '../sandbox.ts';
import { extendLifetime } from './lifetime.ts';

export interface Resumed {
  readonly sandboxId: SandboxId;
  readonly source: { readonly checkpointId: CheckpointId | null; readonly kind: SourceKind };
  readonly lost: readonly Loss[];
  /** Null when the sandbox was running already. */
  readonly operation: Operation | null;
}

/** Takes the step to `resuming` under a new generation; part of the transaction that claims the start. */
export async function stepResuming(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  operation: Operation,
  reason: Reason,
): Promise<Sandbox> {
  const from = operation.request['from'] as CheckpointId | undefined;
  return take(
    ctx,
    tx,
    sandbox,
    'resume',
    'sandbox.resuming',
    { reason },
    { operationId: operation.id, generation: sandbox.generation + 1, baseId: from ?? sandbox.checkpointId },
  );
}

export async function resume(
  ctx: Context,
  desk: Desk,
  caller: Caller,
  sandboxId: SandboxId,
  request: ResumeRequest,
): Promise<Resumed> {
  const { org } = await getSandbox(ctx.db, sandboxId, caller.org);
  if (request.from !== undefined) await getSealed(ctx.db, request.from, org);
  let claimed: Sandbox | undefined;
  const accepted = await desk.accept(
    { kind: 'resume', sandboxId, caller, request, reason: 'request' },
    async (tx, sandbox, operation) => {
      claimed = await stepResuming(ctx, tx, sandbox, operation, 'request');
    },
    async (held) => {
      if (claimed !== undefined) await start(ctx, held, claimed);
    },
  );
  if (accepted.is === 'already') {
    if (request.from !== undefined && accepted.sandbox.baseId !== request.from) {
      throw new TorporError('conflict', 'The sandbox is running from another checkpoint.', {
        sandboxId,
        hint: 'Use rollback to bring a running sandbox to another checkpoint.',
      });
    }
    await extendLifetime(ctx, accepted.sandbox.id, request.timeoutSeconds);
    const operation = await findLastDone(ctx.db, sandboxId, ['create', 'resume', 'rollback', 'snapshot']);
    return { ...sourceOf(operation), sandboxId, operation: null };
  }
  const operation = await desk.finished(accepted.operationId, caller.signal);
  if (accepted.is === 'joined') await extendLifetime(ctx, sandboxId, request.timeoutSeconds);
  return { ...sourceOf(operation), sandboxId, operation };
}

function sourceOf(operation: Operation | undefined): Pick<Resumed, 'source' | 'lost'> {
  const result = (operation?.result ?? {}) as Partial<Pick<Resumed, 'source' | 'lost'>>;
  return { source: result.source ?? { checkpointId: null, kind: 'template' }, lost: result.lost ?? [] };
}

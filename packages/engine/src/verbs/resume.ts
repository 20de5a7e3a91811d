/** Resume: a paused sandbox runs again. */
import type {
  CheckpointId,
  Loss,
  Reason,
  ResumeRequest,
  SandboxId,
  Skipped,
  SourceKind,
} from '@torpor/protocol';
import { TorporError } from '@torpor/protocol';
import { requireStartable } from '../acts/sources.ts';
import { start } from '../acts/start.ts';
import { getSealed } from '../checkpoints/checkpoint.ts';
import { type Context, take } from '../context.ts';
import type { Operation } from '../operations/operation.ts';
import type { Caller } from '../operations/operations.ts';
import { requireQuota, wokenSandbox } from '../orgs/quota.ts';
import type { Transaction } from '../ports/database.ts';
import { getSandbox, type Sandbox } from '../sandbox.ts';
import { extendLifetime } from './lifetime.ts';

/** What a sandbox came back from, without what, and which better sources could not be used. */
export interface StartResult {
  readonly source: { readonly checkpointId: CheckpointId | null; readonly kind: SourceKind };
  readonly lost: readonly Loss[];
  readonly skipped: readonly Skipped[];
}

export interface Resumed extends StartResult {
  readonly sandboxId: SandboxId;
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
  caller: Caller,
  sandboxId: SandboxId,
  request: ResumeRequest,
): Promise<Resumed> {
  const { org, runtime } = await getSandbox(ctx.db, sandboxId, caller.org);
  const replayed = await ctx.operations.replay(caller, 'resume', sandboxId, request);
  if (replayed !== undefined)
    return resumedBy(sandboxId, await ctx.operations.finished(replayed, caller.signal));
  if (request.from !== undefined) requireStartable(await getSealed(ctx.db, request.from, org), runtime);
  let claimed: Sandbox | undefined;
  const accepted = await ctx.operations.accept(
    { kind: 'resume', sandboxId, caller, request, reason: 'request' },
    async (tx, sandbox, operation) => {
      await requireQuota(tx, org, wokenSandbox(sandbox), sandbox);
      claimed = await stepResuming(ctx, tx, sandbox, operation, 'request');
    },
    async (handle) => {
      if (claimed !== undefined) await start(ctx, handle, claimed);
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
    return { ...(await lastStart(ctx, sandboxId)), sandboxId, operation: null };
  }
  const operation = await ctx.operations.finished(accepted.operationId, caller.signal);
  if (accepted.is === 'joined') await extendLifetime(ctx, sandboxId, request.timeoutSeconds);
  return resumedBy(sandboxId, operation);
}

/** The answer to whoever asked for a start that has ended. */
export function resumedBy(sandboxId: SandboxId, operation: Operation): Resumed {
  return { ...startResultOf(operation.result), sandboxId, operation };
}

/** Of what a start has written down as its result. */
function startResultOf(result: unknown): StartResult {
  const {
    source,
    lost,
    skipped = [],
  } = result as Pick<StartResult, 'source' | 'lost'> & Partial<StartResult>;
  return { source, lost, skipped };
}

/** What a running sandbox was last started from, as its ledger tells it. */
async function lastStart(ctx: Context, id: SandboxId): Promise<StartResult> {
  const [row] = await ctx.db.query<{ data: string }>(
    `SELECT data FROM events WHERE sandbox_id = $1 AND type IN ('sandbox.started', 'sandbox.resumed')
     ORDER BY seq DESC LIMIT 1`,
    [id],
  );
  if (row === undefined) throw new TorporError('internal', `Sandbox ${id} runs and was never started.`);
  return startResultOf(JSON.parse(row.data));
}

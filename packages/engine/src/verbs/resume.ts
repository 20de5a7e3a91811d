/** Resume: a paused sandbox runs again. */
import {
  type CheckpointId,
  type Loss,
  type OperationId,
  type ResumeRequest,
  type SandboxId,
  type SandboxView,
  type Skipped,
  type SourceKind,
  TorporError,
} from '@torpor/protocol';
import { requireStartableBy } from '../acts/sources.ts';
import { beginResume, start } from '../acts/start.ts';
import { getSealed } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import { reserve } from '../nodes/reservation.ts';
import type { Succeeded } from '../operations/operation.ts';
import { startResultSchema } from '../operations/operation-kinds.ts';
import type { Caller } from '../operations/operations.ts';
import { requireQuota, wokenSandbox } from '../orgs/quota.ts';
import { observeRunning, sandboxView } from '../queries/sandboxes.ts';
import { getSandbox, type Sandbox } from '../sandbox.ts';
import { extendLifetime } from './lifetime.ts';

/** What a sandbox was started from, what it lost, and which better sources could not be used. */
interface StartResult {
  readonly source: { readonly checkpointId: CheckpointId | null; readonly kind: SourceKind };
  readonly lost: Loss[];
  readonly skipped: Skipped[];
}

/** The answer of a verb that starts an existing sandbox. */
export interface Restarted extends StartResult {
  /** Null when the sandbox was running already. */
  readonly operation: { readonly id: OperationId } | null;
  readonly sandbox: SandboxView;
}

interface Resumed extends Restarted {
  readonly resumed: boolean;
}

/** A request may be held until the sandbox runs, so work in the background gives way from the beginning. */
export function resume(
  ctx: Context,
  caller: Caller,
  sandboxId: SandboxId,
  request: ResumeRequest = {},
): Promise<Resumed> {
  return ctx.foreground.run(() => runResume(ctx, caller, sandboxId, request));
}

async function runResume(
  ctx: Context,
  caller: Caller,
  sandboxId: SandboxId,
  request: ResumeRequest,
): Promise<Resumed> {
  // A resume may be the first to find that the processes of a running sandbox have ended.
  await observeRunning(ctx, caller.org, sandboxId);
  const { org, runtime } = await getSandbox(ctx.db, sandboxId, caller.org);
  const replayed = await ctx.operations.replayed(caller, 'resume', sandboxId, request);
  if (replayed !== undefined) return { ...(await restartedBy(ctx, replayed)), resumed: true };
  if (request.from !== undefined) requireStartableBy(await getSealed(ctx.db, request.from, org), runtime);
  const ended = await ctx.operations.runIdempotent({
    kind: 'resume',
    sandboxId,
    caller,
    request,
    reason: 'request',
    onAccept: async (tx, sandbox, operation) => {
      await requireQuota(tx, org, wokenSandbox(sandbox), sandbox);
      const { memoryMb, checkpointId: asleepIn } = sandbox;
      await reserve(ctx, tx, { memoryMb, what: 'wake', checkpointId: asleepIn });
      return beginResume(ctx, tx, sandbox, operation, 'request');
    },
    execute: (handle, resuming) => start(ctx, handle, resuming),
  });
  if (ended.is === 'already') return alreadyRunning(ctx, ended.sandbox, request);
  if (ended.joined) await extendLifetime(ctx, sandboxId, request.timeoutSeconds);
  return { ...(await restartedBy(ctx, ended.operation)), resumed: true };
}

/** The answer to a caller whose start succeeded. */
export async function restartedBy(
  ctx: Context,
  operation: Succeeded<'create' | 'resume' | 'rollback'>,
): Promise<Restarted> {
  const { org, sandboxId, result } = operation;
  const { source, lost, skipped = [] } = result;
  return { operation, sandbox: await sandboxView(ctx, org, sandboxId), source, lost, skipped };
}

async function alreadyRunning(
  ctx: Context,
  { id, org, baseId }: Sandbox,
  request: ResumeRequest,
): Promise<Resumed> {
  if (request.from !== undefined && baseId !== request.from) {
    throw new TorporError('conflict', 'The sandbox is running from another checkpoint.', {
      sandboxId: id,
      hint: 'Use rollback to bring a running sandbox to another checkpoint.',
    });
  }
  await extendLifetime(ctx, id, request.timeoutSeconds);
  const last = await lastStart(ctx, id);
  return { operation: null, sandbox: await sandboxView(ctx, org, id), ...last, resumed: false };
}

/** What a running sandbox was last started from, as its ledger says. */
async function lastStart(ctx: Context, id: SandboxId): Promise<StartResult> {
  const [row] = await ctx.db.query<{ data: string }>(
    `SELECT data FROM events WHERE sandbox_id = $1 AND type IN ('sandbox.started', 'sandbox.resumed')
     ORDER BY seq DESC LIMIT 1`,
    [id],
  );
  if (row === undefined) throw new TorporError('internal', `Sandbox ${id} runs and was never started.`);
  const { source, lost, skipped = [] } = startResultSchema.parse(JSON.parse(row.data));
  return { source, lost, skipped };
}

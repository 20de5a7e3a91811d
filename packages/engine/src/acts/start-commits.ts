/** The two transactions that end a start: the sandbox runs, or it does not. */
import {
  type CheckpointId,
  type Loss,
  lostDetails,
  type Skipped,
  type SourceKind,
  TorporError,
} from '@torpor/protocol';
import { markDeleted } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import { recordActivity } from '../idleness.ts';
import { jobsAtEnd, jobsAtStart } from '../jobs/follow.ts';
import { applyTransition, recordEvent } from '../ledger/transition.ts';
import { endOperation, findOperation, type Operation } from '../operations/operation.ts';
import { fencedTransaction, fencedTransactionChecked } from '../operations/operation-handle.ts';
import type { Transaction } from '../ports/database.ts';
import type { Started } from '../ports/runtime.ts';
import type { Sandbox } from '../sandbox.ts';
import { checkpointIn, lossBy, proofOfLoss } from './loss.ts';
import { isSourceFault, type StartSource } from './sources.ts';

/** A start that succeeded. */
interface SuccessfulStart {
  readonly source: StartSource;
  readonly started: Started;
  /** Better sources that were tried and could not be used. */
  readonly skipped: readonly Skipped[];
  readonly durationMs: number;
}

/** One transaction: the sandbox runs, its new lifetime is set, and the event names its source. */
export async function commitStarted(
  ctx: Context,
  operation: Operation,
  { source, started, skipped, durationMs }: SuccessfulStart,
): Promise<void> {
  const { checkpoint } = source;
  const lost = unite(source.lost, started.lost);
  const kind: SourceKind = source.kind === 'template' ? 'template' : started.mode;
  const memory = started.mode === 'memory';
  const hasJobs = await fencedTransactionChecked(
    ctx,
    operation,
    async (tx, sandbox) => {
      const now = ctx.clock.now();
      const endsAt = endOfRun(operation, sandbox, now);
      const skippedData = skipped.length === 0 ? {} : { skipped: [...skipped] };
      const result = { source: { checkpointId: checkpoint.id, kind }, lost, ...skippedData };
      await recordActivity(tx, sandbox.id, now);
      await endOperation(tx, operation, now, {
        outcome: 'succeeded',
        result: { ...result, checkpointId: checkpoint.id },
      });
      const from = { checkpoint, memory, succeeded: started.succeeded ?? [] };
      const jobEvents = await jobsAtStart(ctx, tx, sandbox, from, operation);
      const after = await applyTransition(
        ctx,
        tx,
        sandbox,
        'started',
        sandbox.state === 'creating' ? 'sandbox.started' : 'sandbox.resumed',
        { ...result, endsAt, durationMs },
        {
          operationId: operation.id,
          jobEvents,
          baseId: checkpoint.replayable ? checkpoint.id : null,
          ...(checkpoint.sandboxId === sandbox.id
            ? { checkpointId: checkpoint.replayable ? checkpoint.id : null }
            : {}),
          change: { endsAt, lost, reason: null, evidence: 'running', observedAt: now, startedAt: now },
        },
      );
      // The provider used the checkpoint up; it does not exist any more.
      if (!checkpoint.replayable) await consume(ctx, tx, after, checkpoint.id);
      return jobEvents.some(({ type }) => type !== 'job.lost');
    },
    async (tx) => (await findOperation(tx, operation.id))?.outcome === 'succeeded',
  );
  if (hasJobs) ctx.jobWatch.begin(operation.sandboxId);
}

/**
 * The end of the new run. A resume begins the requested lifetime, or the configured one. A sandbox that was sealed and
 * started again within one operation keeps its end.
 */
function endOfRun(operation: Operation, sandbox: Sandbox, now: number): number | null {
  const asked = operation.kind === 'resume' ? operation.request.timeoutSeconds : undefined;
  if (asked !== undefined) return now + asked * 1_000;
  if (sandbox.endsAt !== null) return sandbox.endsAt;
  return sandbox.timeoutMs === null ? null : now + sandbox.timeoutMs;
}

async function consume(ctx: Context, tx: Transaction, sandbox: Sandbox, id: CheckpointId): Promise<void> {
  await tx.query('DELETE FROM checkpoint_names WHERE checkpoint_id = $1', [id]);
  await markDeleted(tx, id, ctx.clock.now());
  await tx.query('UPDATE checkpoints SET removed_at = $2 WHERE id = $1', [id, ctx.clock.now()]);
  await recordEvent(
    ctx,
    tx,
    sandbox,
    'checkpoint.deleted',
    { checkpointId: id, why: 'consumed' },
    { operationId: null },
  );
}

function unite(a: readonly Loss[], b: readonly Loss[]): Loss[] {
  return [...new Set([...a, ...b])];
}

/** Ends a failed start: a sandbox that never ran is `failed`, any other is `paused`, or `lost` with a proof. */
export async function endFailedStart(
  ctx: Context,
  operation: Operation,
  sandbox: Sandbox,
  error: TorporError,
): Promise<void> {
  const proof =
    sandbox.state === 'resuming' && isSourceFault(error) ? await proofOfLoss(ctx, sandbox) : undefined;
  await fencedTransaction(ctx, operation, async (tx, locked) => {
    const now = ctx.clock.now();
    const { code, message } = error;
    const ids = { operationId: operation.id, baseId: locked.checkpointId };
    const loss = proof === undefined ? undefined : lossBy(proof);
    const failed =
      loss === undefined
        ? error
        : new TorporError('lost', `The sandbox is lost: ${loss.reason}`, {
            sandboxId: locked.id,
            ...lostDetails(loss),
            cause: error,
          });
    // The checkpoint of a snapshot or a fork is committed, so the operation succeeded; its sandbox stays paused.
    const sealed = operation.kind === 'snapshot' || operation.kind === 'fork' ? locked.checkpointId : null;
    await endOperation(
      tx,
      operation,
      now,
      sealed !== null
        ? { outcome: 'succeeded', result: { checkpointId: sealed } }
        : { outcome: 'failed', error: failed },
    );
    if (loss !== undefined) {
      const known = { evidence: 'ledger', observedAt: now } as const;
      const change = { ...loss, lost: ['processes', 'files'] as const, ...known };
      const jobEvents = await jobsAtEnd(ctx, tx, locked, 'sandbox_lost', operation.id);
      const fields = { operationId: operation.id, baseId: null, checkpointId: null, change, jobEvents };
      const data = { reason: loss.reason, previousState: locked.state, ...loss.lostCheckpoint };
      await applyTransition(ctx, tx, locked, 'lost', 'sandbox.lost', data, fields);
      return;
    }
    const event = locked.state === 'creating' ? 'sandbox.failed' : 'sandbox.resume_failed';
    const reason = locked.state === 'creating' ? message : locked.reason;
    const change = { reason, endsAt: null, evidence: 'ledger', observedAt: now } as const;
    const shown = { code, message, ...checkpointIn(error) };
    await applyTransition(ctx, tx, locked, 'start_failed', event, { error: shown }, { ...ids, change });
  });
}

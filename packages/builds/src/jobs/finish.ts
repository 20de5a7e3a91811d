/**
 * Ends of a build: ready, failed or cancelled. Each frees the build's slots and admits waiting builds in one
 * transaction.
 */
import { type LeasedJob, requireLease, type Transaction, withdraw } from '@torpor/engine';
import { isBuildOver, type JobId, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import { admit, lockAdmission } from './admission.ts';
import { type BuildJob, lockJob, noSuchJob } from './job.ts';
import { type JobChange, transition } from './transition.ts';
import { recordDuration } from './usage.ts';
import { takeVersion } from './version.ts';

/** Makes the build `ready` and gives it its version. Only the holder of the lease may do so. */
export async function finishReady(
  ctx: BuildContext,
  leased: LeasedJob,
  job: BuildJob,
  change: JobChange,
): Promise<BuildJob | undefined> {
  return ctx.db.transaction(async (tx) => {
    await lockAdmission(tx);
    await requireLease(tx, leased);
    const buildVersion = await takeVersion(tx, job.org, job.projectId);
    const message = 'Build complete!';
    const previewUrl = change.previewUrl ?? null;
    const ready = await transition(tx, job.id, 'ready', {
      at: ctx.clock.now(),
      // Clients that only read the event stream get the URL here (R13).
      message: previewUrl === null ? message : JSON.stringify({ message, preview_url: previewUrl }),
      change: { ...change, buildVersion },
    });
    if (ready === undefined) return undefined;
    await recordDuration(ctx, tx, ready);
    await admit(ctx, tx);
    return ready;
  });
}

export interface FailureRecord {
  readonly debugId: string;
  /** The message of the event. */
  readonly message: string;
  readonly errorMessage: string;
}

/** Makes the build `failed`. Only the holder of the lease may do so. */
export async function finishFailed(
  ctx: BuildContext,
  leased: LeasedJob,
  id: JobId,
  ending: FailureRecord,
): Promise<BuildJob | undefined> {
  return ctx.db.transaction(async (tx) => {
    await lockAdmission(tx);
    await requireLease(tx, leased);
    return markFailed(ctx, tx, id, ending);
  });
}

/** Makes the build `failed` without the lease. Every later write of its worker is refused (R19). */
export async function stopJob(
  ctx: BuildContext,
  tx: Transaction,
  id: JobId,
  ending: FailureRecord,
): Promise<BuildJob | undefined> {
  await lockAdmission(tx);
  const failed = await markFailed(ctx, tx, id, ending);
  if (failed !== undefined) await withdraw(tx, id, ctx.clock.now());
  return failed;
}

const CANCELLED = 'Cancelled by user';

/** Every later write of the build's worker is refused. The caller must kill the build's sandboxes. */
export async function cancelJob(ctx: BuildContext, id: JobId): Promise<BuildJob> {
  return ctx.db.transaction(async (tx) => {
    await lockAdmission(tx);
    const job = await lockJob(tx, id);
    if (job === undefined) throw noSuchJob();
    if (isBuildOver(job.status)) {
      throw new TorporError('conflict', `The job is ${job.status} already and cannot be cancelled.`);
    }
    // The transition table has no edge from scheduled to failed, only through queued.
    if (job.status === 'scheduled') await transition(tx, id, 'queued', { at: ctx.clock.now() });
    const debugId = ctx.uuid();
    const failed = await stopJob(ctx, tx, id, { debugId, message: CANCELLED, errorMessage: CANCELLED });
    return failed ?? job;
  });
}

async function markFailed(
  ctx: BuildContext,
  tx: Transaction,
  id: JobId,
  { debugId, message, errorMessage }: FailureRecord,
) {
  const change = { debugId, errorMessage };
  const failed = await transition(tx, id, 'failed', { at: ctx.clock.now(), message, change });
  if (failed !== undefined) await admit(ctx, tx);
  return failed;
}

/** Pauses the preview of a ready build, and records that it is paused. The API calls this a snapshot (`snapshot.updated`). */
import { type CheckpointId, type SandboxId, type SnapshotOutcome, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import type { BuildJob } from '../jobs/job.ts';
import { recordEvent } from '../jobs/transition.ts';

export async function pauseBuild(
  ctx: BuildContext,
  job: BuildJob,
  signal: AbortSignal,
): Promise<CheckpointId | null> {
  if (job.sandboxId === null) return null;
  const { checkpointId } = await ctx.sandboxes.pause(job.org, job.sandboxId, signal);
  await ctx.pass('build.paused');
  await recordPreviewState(ctx, job, { sandboxPaused: 1, pauseSettled: 1 }, 'The preview is paused.');
  return checkpointId;
}

/** Pauses the preview on request. Never throws (R41): the outcome says what happened. */
export async function pauseOnRequest(
  ctx: BuildContext,
  job: BuildJob,
  sandboxId: SandboxId,
  signal: AbortSignal,
): Promise<SnapshotOutcome> {
  try {
    const found = await ctx.sandboxes.find(job.org, sandboxId);
    if (found === undefined) return { outcome: 'failed', error: 'The sandbox does not exist any more.' };
    if (found.state === 'paused') {
      // A paused sandbox is not resumed only to be paused again (R43).
      if (job.sandboxPaused === 0)
        await recordPreviewState(ctx, job, { sandboxPaused: 1 }, 'The preview is paused.');
      return outcome('already_paused', found.checkpointId);
    }
    return outcome('paused', await pauseBuild(ctx, job, signal));
  } catch (thrown) {
    ctx.report('a snapshot failed', { jobId: job.id, error: thrown });
    return { outcome: 'failed', error: TorporError.from(thrown).message };
  }
}

function outcome(
  is: 'paused' | 'already_paused',
  checkpointId: SnapshotOutcome['checkpoint_id'] | null,
): SnapshotOutcome {
  return { outcome: is, ...(checkpointId == null ? {} : { checkpoint_id: checkpointId }) };
}

export const CANNOT_PAUSE = 'The runtime cannot pause: the preview is lost when its lifetime ends';

/**
 * Records that the pause after `ready` will not happen. The build stays ready (R26); readers of its events learn why.
 */
export async function recordPauseSkipped(ctx: BuildContext, job: BuildJob, why: string): Promise<void> {
  const change = { pauseSettled: 1 } as const;
  const message = `The preview stays running: ${why}`;
  await ctx.db.transaction((tx) =>
    recordEvent(tx, job.id, 'snapshot.failed', { at: ctx.clock.now(), message, change }),
  );
}

/** Copies the sandbox's state into the row. When the write fails, the next status call corrects the row (R38). */
export async function recordPreviewState(
  ctx: BuildContext,
  job: BuildJob,
  change: { readonly sandboxPaused: 0 | 1; readonly pauseSettled?: 1; readonly previewUrl?: string },
  message: string,
): Promise<void> {
  await ctx.db
    .transaction((tx) =>
      recordEvent(tx, job.id, 'snapshot.updated', { at: ctx.clock.now(), message, change }),
    )
    .catch((thrown: unknown) =>
      ctx.report('the preview state of a build was not recorded', { jobId: job.id, error: thrown }),
    );
}

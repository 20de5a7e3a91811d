/** Putting a ready build to sleep, and writing that down when it is confirmed. */
import type { CheckpointId } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import type { BuildJob } from '../jobs/job.ts';
import { noteEvent } from '../jobs/transition.ts';

export async function pauseBuild(
  ctx: BuildContext,
  job: BuildJob,
  signal: AbortSignal,
): Promise<CheckpointId | null> {
  if (job.sandboxId === null) return null;
  const { checkpointId } = await ctx.sandboxes.pause(job.org, job.sandboxId, signal);
  await ctx.pass('build.paused');
  await project(ctx, job, { sandboxPaused: 1, pauseSettled: 1 }, 'The preview sleeps.');
  return checkpointId;
}

export const CANNOT_PAUSE = 'The runtime cannot pause: the preview is gone when its time is over';

/** The pause after `ready` will not happen. The build is ready all the same (R26); those who follow it learn why. */
export async function noteNoPause(ctx: BuildContext, job: BuildJob, why: string): Promise<void> {
  const change = { pauseSettled: 1 } as const;
  const message = `The preview stays awake: ${why}`;
  await ctx.db.transaction((tx) =>
    noteEvent(tx, job.id, 'snapshot.failed', { at: ctx.clock.now(), message, change }),
  );
}

/** The row follows the sandbox. When it cannot be written now, the next look at the job makes it agree (R38). */
export async function project(
  ctx: BuildContext,
  job: BuildJob,
  change: { readonly sandboxPaused: 0 | 1; readonly pauseSettled?: 1; readonly previewUrl?: string },
  message: string,
): Promise<void> {
  await ctx.db
    .transaction((tx) => noteEvent(tx, job.id, 'snapshot.updated', { at: ctx.clock.now(), message, change }))
    .catch((thrown: unknown) =>
      ctx.report('what a build shows was not written', { jobId: job.id, error: thrown }),
    );
}

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
  await project(ctx, job, { sandboxPaused: 1 }, 'The preview sleeps.');
  return checkpointId;
}

/** The row follows the sandbox. When it cannot be written now, the next look at the job makes it agree (R38). */
export async function project(
  ctx: BuildContext,
  job: BuildJob,
  change: { readonly sandboxPaused: 0 | 1; readonly previewUrl?: string },
  message: string,
): Promise<void> {
  await ctx.db
    .transaction((tx) => noteEvent(tx, job.id, 'snapshot.updated', { at: ctx.clock.now(), message, change }))
    .catch((thrown: unknown) =>
      ctx.report('what a build shows was not written', { jobId: job.id, error: thrown }),
    );
}

/** `snapshot`: sleep now, whatever it takes, and never a failure of the caller's (R41); the truth is in the outcome. */
import { type SandboxId, type SnapshotOutcome, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import type { BuildJob } from '../jobs/job.ts';
import { pauseBuild, project } from './pause.ts';

export async function snapshotBuild(
  ctx: BuildContext,
  job: BuildJob,
  sandboxId: SandboxId,
  signal: AbortSignal,
): Promise<SnapshotOutcome> {
  try {
    const found = await ctx.sandboxes.find(job.org, sandboxId);
    if (found === undefined) return { outcome: 'failed', error: 'There is no such sandbox any more.' };
    if (found.state === 'paused') {
      // Nothing is woken only to be put to sleep again (R43).
      if (job.sandboxPaused === 0) await project(ctx, job, { sandboxPaused: 1 }, 'The preview sleeps.');
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

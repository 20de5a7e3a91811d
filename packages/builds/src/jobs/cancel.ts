/** Ending a build on its user's word, wherever it is. */
import { isBuildOver, type JobId, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import { lockGate } from './admission.ts';
import { stopJob } from './finish.ts';
import { type BuildJob, lockJob, noSuchJob } from './job.ts';
import { transition } from './transition.ts';

const CANCELLED = 'Cancelled by user';

/** Whatever its worker writes from here on is refused; its sandboxes are the caller's to end. */
export async function cancelJob(ctx: BuildContext, id: JobId): Promise<BuildJob> {
  return ctx.db.transaction(async (tx) => {
    await lockGate(tx);
    const job = await lockJob(tx, id);
    if (job === undefined) throw noSuchJob();
    if (isBuildOver(job.status)) {
      throw new TorporError('conflict', `The job is ${job.status} already and cannot be cancelled.`);
    }
    // The table knows no way from scheduled to failed but through the line.
    if (job.status === 'scheduled') await transition(tx, id, 'queued', { at: ctx.clock.now() });
    const debugId = ctx.uuid();
    const failed = await stopJob(ctx, tx, id, { debugId, message: CANCELLED, errorMessage: CANCELLED });
    return failed ?? job;
  });
}

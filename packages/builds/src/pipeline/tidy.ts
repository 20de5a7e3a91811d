/** The sandboxes of a build that did not become one: ended, and looked for again until it is sure. */
import type { BuildContext } from '../context.ts';
import { type BuildJob, toJob } from '../jobs/job.ts';

/** Ends every sandbox of the job; says whether there was one. */
export async function endSandboxes({ sandboxes }: BuildContext, job: BuildJob): Promise<boolean> {
  const found = await sandboxes.ofJob(job.org, job.id);
  await Promise.all(found.map((id) => sandboxes.kill(job.org, id)));
  return found.length > 0;
}

/**
 * One round over failed builds. A worker that died may have asked for a sandbox that comes to be only now, so a
 * build is looked at for a while after its end (R18).
 */
export async function tidyRound(ctx: BuildContext): Promise<void> {
  const rows = await ctx.db.query(`SELECT * FROM build_jobs WHERE status = 'failed' AND tidied = 0`);
  for (const job of rows.map(toJob)) {
    const left = await endSandboxes(ctx, job);
    if (left || (job.completedAt ?? 0) + ctx.settings.tidyMs > ctx.clock.now()) continue;
    await ctx.db.transaction((tx) => tx.query('UPDATE build_jobs SET tidied = 1 WHERE id = $1', [job.id]));
  }
}

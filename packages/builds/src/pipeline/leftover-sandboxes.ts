/** Kills the sandboxes of builds that did not become ready, and looks again for late ones. */
import type { BuildContext } from '../context.ts';
import { type BuildJob, toJob } from '../jobs/job.ts';

/** Kills every sandbox of the job. Returns whether there was one. */
export async function killSandboxes({ sandboxes }: BuildContext, job: BuildJob): Promise<boolean> {
  const found = await sandboxes.ofJob(job.org, job.id);
  await Promise.all(found.map((id) => sandboxes.kill(job.org, id)));
  return found.length > 0;
}

/**
 * One round over failed builds. A worker that died may have requested a sandbox that is created only later, so a build
 * is checked for a while after its end (R18).
 */
export async function killLeftoverSandboxes(ctx: BuildContext): Promise<void> {
  const rows = await ctx.db.query(`SELECT * FROM build_jobs WHERE status = 'failed' AND tidied = 0`);
  for (const job of rows.map(toJob)) {
    const left = await killSandboxes(ctx, job);
    if (left || (job.completedAt ?? 0) + ctx.settings.tidyMs > ctx.clock.now()) continue;
    await ctx.db.transaction((tx) => tx.query('UPDATE build_jobs SET tidied = 1 WHERE id = $1', [job.id]));
  }
}

/** Kills the sandboxes of builds that did not become ready, and looks again for late ones. */
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import { type BuildJob, toJob } from '../jobs/job.ts';

/**
 * Kills every sandbox of the job. Returns whether there was one. A sandbox whose node is away is killed later: the next attempt
 * must not wait for it.
 */
export async function killSandboxes(ctx: BuildContext, job: BuildJob): Promise<boolean> {
  const found = await ctx.sandboxes.ofJob(job.org, job.id);
  await Promise.all(
    found.map((id) =>
      ctx.sandboxes.kill(job.org, id).catch(async (thrown: unknown) => {
        if (!(thrown instanceof TorporError) || thrown.code !== 'unreachable') throw thrown;
        await addLeftover(ctx, job, id);
      }),
    ),
  );
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
  await killUnreachable(ctx);
}

async function addLeftover({ db }: BuildContext, { org, id: jobId }: BuildJob, id: SandboxId): Promise<void> {
  await db.transaction((tx) =>
    tx.query(
      `INSERT INTO build_leftovers (sandbox_id, org, job_id) VALUES ($1, $2, $3)
       ON CONFLICT (sandbox_id) DO NOTHING`,
      [id, org, jobId],
    ),
  );
}

const AT_ONCE = 100;

/** When a kill fails, the row stays, and the next round tries again. */
async function killUnreachable({ db, sandboxes, report }: BuildContext): Promise<void> {
  const rows = await db.query<{ sandbox_id: SandboxId; org: string; job_id: string }>(
    'SELECT sandbox_id, org, job_id FROM build_leftovers ORDER BY sandbox_id LIMIT $1',
    [AT_ONCE],
  );
  for (const { sandbox_id: id, org, job_id: jobId } of rows) {
    try {
      await sandboxes.kill(org, id);
      await db.transaction((tx) => tx.query('DELETE FROM build_leftovers WHERE sandbox_id = $1', [id]));
    } catch (error) {
      report('a sandbox of an earlier attempt could not be killed yet', { jobId, sandboxId: id, error });
    }
  }
}

/** Background tasks: queue scheduled builds, admit waiting ones, and fail stale ones. */
import type { BuildContext } from '../context.ts';
import { planOf } from '../plans.ts';
import { admit, lockAdmission } from './admission.ts';
import { stopJob } from './finish.ts';
import { toJob } from './job.ts';
import { transition } from './transition.ts';
import { countJob, jobsToday } from './usage.ts';

/** Queues the scheduled builds that are due, within the daily limit. */
export async function queueScheduled(ctx: BuildContext): Promise<void> {
  const now = ctx.clock.now();
  const due = await ctx.db.query(
    `SELECT * FROM build_jobs WHERE status = 'scheduled' AND not_before <= $1 ORDER BY priority, number`,
    [now],
  );
  for (const job of due.map(toJob)) {
    await ctx.db.transaction(async (tx) => {
      await lockAdmission(tx);
      const owner = { org: job.org, user: job.userId };
      if ((await jobsToday(tx, owner, now)) >= planOf(ctx.settings, job.userId).perDay) return;
      if ((await transition(tx, job.id, 'queued', { at: now })) === undefined) return;
      await countJob(tx, owner, now);
      await admit(ctx, tx);
    });
  }
}

/** A raised quota gives new slots although no build has ended. */
export async function admitWaiting(ctx: BuildContext): Promise<void> {
  const [waits] = await ctx.db.query(
    `SELECT id FROM build_jobs WHERE status = 'queued' AND completed_at IS NULL AND admitted_at IS NULL LIMIT 1`,
  );
  if (waits === undefined) return;
  await ctx.db.transaction(async (tx) => {
    await lockAdmission(tx);
    await admit(ctx, tx);
  });
}

export async function failStale(ctx: BuildContext): Promise<void> {
  const before = ctx.clock.now() - ctx.settings.staleMs;
  const rows = await ctx.db.query(
    `SELECT * FROM build_jobs WHERE completed_at IS NULL AND status <> 'scheduled' AND created_at < $1`,
    [before],
  );
  for (const job of rows.map(toJob)) {
    const debugId = ctx.uuid();
    const errorMessage = 'The build did not finish in time.';
    const message = `Build failed. debug_id: ${debugId}. ${errorMessage}`;
    await ctx.db.transaction((tx) => stopJob(ctx, tx, job.id, { debugId, message, errorMessage }));
  }
}

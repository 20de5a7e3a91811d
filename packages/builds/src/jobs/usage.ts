/** The daily usage of a user, and the estimated wait of a build. */
import type { Queryable, Transaction } from '@torpor/engine';
import type { BuildUsage, WaitEstimate } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import { planOf } from '../plans.ts';
import { findRoot } from './iteration-root.ts';
import type { BuildJob, Owner } from './job.ts';

const DAY_MS = 24 * 3_600_000;

/** Days begin at midnight UTC for all users. */
function dayOf(now: number): string {
  return new Date(now).toISOString().slice(0, 10);
}

export function nextMidnight(now: number): number {
  return Math.floor(now / DAY_MS) * DAY_MS + DAY_MS;
}

export async function jobsToday(db: Queryable, { org, user }: Owner, now: number): Promise<number> {
  const [row] = await db.query<{ jobs: number }>(
    'SELECT jobs FROM build_usage WHERE org = $1 AND user_id = $2 AND day = $3',
    [org, user, dayOf(now)],
  );
  return row?.jobs ?? 0;
}

/** The caller holds the admission lock. */
export async function countJob(tx: Transaction, { org, user }: Owner, now: number): Promise<void> {
  await tx.query(
    `INSERT INTO build_usage (org, user_id, day, jobs) VALUES ($1, $2, $3, 1)
     ON CONFLICT (org, user_id, day) DO UPDATE SET jobs = build_usage.jobs + 1`,
    [org, user, dayOf(now)],
  );
}

/** The number of iterations before the user must confirm; at most three times the plan's. */
export function iterationsAllowed(ctx: BuildContext, job: BuildJob): number {
  const { iterations } = planOf(ctx.settings, job.userId);
  return Math.min(iterations + job.iterationsGranted, 3 * iterations);
}

/** Iterations are counted for the whole chain, so every build of it reports the same number. */
export async function usageOf(ctx: BuildContext, job: BuildJob): Promise<BuildUsage> {
  const now = ctx.clock.now();
  const root = (await findRoot(ctx.db, job.id)) ?? job;
  const { perDay } = planOf(ctx.settings, job.userId);
  const used = await jobsToday(ctx.db, { org: job.org, user: job.userId }, now);
  return {
    jobs_used: used,
    jobs_remaining: Math.max(0, perDay - used),
    iterations_used: root.iterationsUsed,
    iterations_remaining: Math.max(0, iterationsAllowed(ctx, root) - root.iterationsUsed),
    daily_limit_resets_at: new Date(nextMidnight(now)).toISOString(),
  };
}

/** Starts at 1; 0 for a build that is not queued. */
export async function positionOf(db: Queryable, job: BuildJob): Promise<number> {
  if (job.status !== 'queued') return 0;
  const [row] = await db.query<{ before: number }>(
    `SELECT count(*) AS before FROM build_jobs
     WHERE status = 'queued' AND (priority < $1 OR (priority = $1 AND number < $2))`,
    [job.priority, job.number],
  );
  return (row?.before ?? 0) + 1;
}

/** The relative error of the estimate, and the weight of the newest duration in the moving average. */
const MARGIN = 0.3;
const SMOOTHING = 0.3;
/** The confidence is low from this position on. */
const PREDICTABLE_POSITION = 10;

export async function estimateWait(
  ctx: BuildContext,
  job: BuildJob,
  position: number,
): Promise<WaitEstimate | null> {
  if (position === 0) return null;
  const seconds = (await expectedSeconds(ctx, ctx.db, job)) * position;
  return {
    seconds: Math.round(seconds),
    low_seconds: Math.round(seconds * (1 - MARGIN)),
    high_seconds: Math.round(seconds * (1 + MARGIN)),
    confidence: position < PREDICTABLE_POSITION ? 'medium' : 'low',
  };
}

/** In whole minutes, at least 1, for refused callers. */
export async function retryMinutes(ctx: BuildContext, tx: Queryable, job: { userId: string; plan: string }) {
  const seconds = await expectedSeconds(ctx, tx, job);
  return Math.max(1, Math.ceil(seconds / ctx.settings.workers / 60));
}

async function expectedSeconds(
  ctx: BuildContext,
  db: Queryable,
  { plan, userId }: Pick<BuildJob, 'plan' | 'userId'>,
): Promise<number> {
  const [row] = await db.query<{ seconds: number }>('SELECT seconds FROM build_durations WHERE plan = $1', [
    plan,
  ]);
  return row?.seconds ?? planOf(ctx.settings, userId).usualSeconds;
}

/** Updates the moving average with a build that became ready. The caller holds the admission lock. */
export async function recordDuration(ctx: BuildContext, tx: Transaction, job: BuildJob): Promise<void> {
  if (job.startedAt === null || job.completedAt === null) return;
  const took = (job.completedAt - job.startedAt) / 1_000;
  const seconds = SMOOTHING * took + (1 - SMOOTHING) * (await expectedSeconds(ctx, tx, job));
  await tx.query(
    `INSERT INTO build_durations (plan, seconds) VALUES ($1, $2)
     ON CONFLICT (plan) DO UPDATE SET seconds = excluded.seconds`,
    [job.plan, seconds],
  );
}

/** How much a user has built today, and how long a build may have to wait. */
import type { Queryable, Transaction } from '@torpor/engine';
import type { BuildUsage, WaitEstimate } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import { planOf } from '../plans.ts';
import type { BuildJob, Owner } from './job.ts';
import { findRoot } from './root.ts';

const DAY_MS = 24 * 3_600_000;

/** Days begin at midnight UTC, for everybody. */
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

/** The gate is held. */
export async function countJob(tx: Transaction, { org, user }: Owner, now: number): Promise<void> {
  await tx.query(
    `INSERT INTO build_usage (org, user_id, day, jobs) VALUES ($1, $2, $3, 1)
     ON CONFLICT (org, user_id, day) DO UPDATE SET jobs = build_usage.jobs + 1`,
    [org, user, dayOf(now)],
  );
}

/** How many iterations a build may still have before somebody confirms; never more than three times the plan's. */
export function iterationsAllowed(ctx: BuildContext, job: BuildJob): number {
  const { iterations } = planOf(ctx.settings, job.userId);
  return Math.min(iterations + job.iterationsGranted, 3 * iterations);
}

/** Iterations are counted for the whole row of them, whichever of its builds is asked about. */
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

/** Counted from 1; 0 for a job that does not wait in line. */
export async function positionOf(db: Queryable, job: BuildJob): Promise<number> {
  if (job.status !== 'queued') return 0;
  const [row] = await db.query<{ before: number }>(
    `SELECT count(*) AS before FROM build_jobs
     WHERE status = 'queued' AND (priority < $1 OR (priority = $1 AND number < $2))`,
    [job.priority, job.number],
  );
  return (row?.before ?? 0) + 1;
}

/** How far the estimate may be off, and how soon it follows what really happens. */
const BAND = 0.3;
const ALPHA = 0.3;
/** Further back in the line nobody can say. */
const FORESEEABLE = 10;

export async function estimateWait(
  ctx: BuildContext,
  job: BuildJob,
  position: number,
): Promise<WaitEstimate | null> {
  if (position === 0) return null;
  const seconds = (await usualSeconds(ctx, ctx.db, job)) * position;
  return {
    seconds: Math.round(seconds),
    low_seconds: Math.round(seconds * (1 - BAND)),
    high_seconds: Math.round(seconds * (1 + BAND)),
    confidence: position < FORESEEABLE ? 'medium' : 'low',
  };
}

/** In whole minutes and never 0, for those who are sent away. */
export async function retryMinutes(ctx: BuildContext, tx: Queryable, job: { userId: string; plan: string }) {
  const seconds = await usualSeconds(ctx, tx, job);
  return Math.max(1, Math.ceil(seconds / ctx.settings.workers / 60));
}

async function usualSeconds(
  ctx: BuildContext,
  db: Queryable,
  { plan, userId }: Pick<BuildJob, 'plan' | 'userId'>,
): Promise<number> {
  const [row] = await db.query<{ seconds: number }>('SELECT seconds FROM build_durations WHERE plan = $1', [
    plan,
  ]);
  return row?.seconds ?? planOf(ctx.settings, userId).usualSeconds;
}

/** Learns from a build that became ready; the gate is held. */
export async function learnDuration(ctx: BuildContext, tx: Transaction, job: BuildJob): Promise<void> {
  if (job.startedAt === null || job.completedAt === null) return;
  const took = (job.completedAt - job.startedAt) / 1_000;
  const seconds = ALPHA * took + (1 - ALPHA) * (await usualSeconds(ctx, tx, job));
  await tx.query(
    `INSERT INTO build_durations (plan, seconds) VALUES ($1, $2)
     ON CONFLICT (plan) DO UPDATE SET seconds = excluded.seconds`,
    [job.plan, seconds],
  );
}

/** Submits a build: checks the limits and queues the build in one transaction. */
import { countBuilds, findOrg, quotaExceeded, type Transaction } from '@torpor/engine';
import { type BuildState, type JobId, type RunnerName, STAGE_LABELS, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import { planOf } from '../plans.ts';
import { admit, lockAdmission, nextJobNumber } from './admission.ts';
import { insertEvent } from './events.ts';
import { lockRoot } from './iteration-root.ts';
import { type BuildJob, lockJob, type Owner, toJob } from './job.ts';
import { requireFiles } from './retention.ts';
import { changeJob, transition } from './transition.ts';
import { countJob, iterationsAllowed, jobsToday, nextMidnight, retryMinutes } from './usage.ts';

export interface BuildSubmission extends Owner {
  readonly projectId: string;
  readonly goal: string;
  readonly runner: RunnerName;
  readonly port?: number | undefined;
  readonly previous?: { readonly id: JobId; readonly kind: 'iteration' | 'rebuild' } | undefined;
}

const SCHEDULED = 'Daily limit reached. Scheduled for tomorrow.';

export async function submit(ctx: BuildContext, submission: BuildSubmission): Promise<BuildJob> {
  return ctx.db.transaction(async (tx) => {
    const now = ctx.clock.now();
    const plan = planOf(ctx.settings, submission.user);
    await lockAdmission(tx);
    await refuseWhenFull(ctx, tx, { userId: submission.user, plan: plan.name });
    await tx.query(
      'INSERT INTO build_projects (org, id, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING',
      [submission.org, submission.projectId, now],
    );
    if (submission.previous !== undefined) await lockPrevious(tx, submission.previous);
    if (submission.previous?.kind === 'iteration') await countIteration(ctx, tx, submission.previous.id);
    const job = await insert(ctx, tx, submission, plan.name, 1_000 - plan.boost, now);
    if ((await jobsToday(tx, submission, now)) >= plan.perDay) return schedule(tx, job, now);
    await countJob(tx, submission, now);
    await admit(ctx, tx);
    const admitted = (await lockJob(tx, job.id)) ?? job;
    if (admitted.admittedAt === null) await checkQueuedQuota(tx, submission.org);
    return admitted;
  });
}

/**
 * Locks the build that this one is based on, so that its files are not removed before this build is inserted. An
 * iteration needs the files; a rebuild without them runs its runner again.
 */
async function lockPrevious(
  tx: Transaction,
  { id, kind }: NonNullable<BuildSubmission['previous']>,
): Promise<void> {
  const previous = await lockJob(tx, id);
  if (previous !== undefined && kind === 'iteration') requireFiles(previous);
}

async function schedule(tx: Transaction, job: BuildJob, now: number): Promise<BuildJob> {
  const change = { notBefore: nextMidnight(now) };
  return (await transition(tx, job.id, 'scheduled', { at: now, message: SCHEDULED, change })) ?? job;
}

async function refuseWhenFull(
  ctx: BuildContext,
  tx: Transaction,
  who: { readonly userId: string; readonly plan: string },
): Promise<void> {
  const [row] = await tx.query<{ waiting: number }>(
    `SELECT count(*) AS waiting FROM build_jobs WHERE status = 'queued'`,
  );
  if ((row?.waiting ?? 0) < ctx.settings.maxWaiting) return;
  const minutes = await retryMinutes(ctx, tx, who);
  throw new TorporError('capacity', `System busy. Try again in ${minutes} minutes.`, {
    retryAfterMs: minutes * 60_000,
    details: { retry_after_minutes: minutes },
  });
}

/** The count includes the build that was just queued. The throw rolls the transaction back, and the build with it. */
async function checkQueuedQuota(tx: Transaction, org: string): Promise<void> {
  const limit = (await findOrg(tx, org))?.quotas.queuedBuilds ?? null;
  if (limit === null) return;
  const { waiting } = await countBuilds(tx, org);
  if (waiting > limit) throw quotaExceeded(org, 'queuedBuilds', limit, waiting - 1);
}

async function countIteration(ctx: BuildContext, tx: Transaction, id: JobId): Promise<void> {
  const root = await lockRoot(tx, id);
  if (root === undefined) return;
  if (root.iterationsUsed >= iterationsAllowed(ctx, root)) {
    throw new TorporError(
      'conflict',
      `Iteration limit reached. Confirm ${root.id} to go on (torpor build confirm).`,
      {
        details: { job_id: root.id, iterations_used: root.iterationsUsed },
      },
    );
  }
  await changeJob(tx, root, { iterationsUsed: root.iterationsUsed + 1 });
}

async function insert(
  ctx: BuildContext,
  tx: Transaction,
  submission: BuildSubmission,
  plan: string,
  priority: number,
  now: number,
): Promise<BuildJob> {
  const status: BuildState = 'queued';
  const message = STAGE_LABELS[status];
  const [row] = await tx.query(
    `INSERT INTO build_jobs (id, org, user_id, project_id, plan, runner, goal, wanted_port, previous_id,
       previous_kind, status, status_message, last_event, last_line, priority, number, created_at, updated_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 1, 0, $13, $14, $15, $15) RETURNING *`,
    [
      ctx.ids.next('job'),
      submission.org,
      submission.user,
      submission.projectId,
      plan,
      submission.runner,
      submission.goal,
      submission.port ?? null,
      submission.previous?.id ?? null,
      submission.previous?.kind ?? null,
      status,
      message,
      priority,
      await nextJobNumber(tx),
      now,
    ],
  );
  if (row === undefined) throw new Error('A build was not written.');
  const job = toJob(row);
  await insertEvent(tx, job, 'build.stage.started', message, now);
  return job;
}

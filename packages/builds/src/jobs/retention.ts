/**
 * Letting go of the files and logs of builds that are long over. Rows and versions stay: versions are counted by them.
 *
 * Each build is one transaction that removes what is due and writes down that it is gone, so a crash leaves either
 * all of it or nothing. One round looks at a bounded number of builds; the next round continues after the last of
 * them, so builds that must stay do not keep the others from going.
 */
import { type BuildErrorType, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import { lifeOf } from '../preview/sandbox-life.ts';
import { type BuildJob, lockJob, toJob } from './job.ts';
import { changeJob, type JobChange } from './transition.ts';

/** What was asked for is not kept any more. */
export class PartExpired extends TorporError {
  readonly errorType: BuildErrorType;

  constructor(part: 'files' | 'logs') {
    super('expired', `The ${part} of this build are not kept any more.`);
    this.errorType = part === 'files' ? 'files_expired' : 'logs_expired';
  }
}

export function requireFiles(job: BuildJob): BuildJob {
  if (job.filesExpiredAt !== null) throw new PartExpired('files');
  return job;
}

export function requireLogs(job: BuildJob): BuildJob {
  if (job.logsExpiredAt !== null) throw new PartExpired('logs');
  return job;
}

/** Looks at the builds after the given number; returns where the next round continues, 0 for the beginning. */
export async function retentionRound(ctx: BuildContext, after: number): Promise<number> {
  const page = await dueAfter(ctx, after);
  for (const { job, crowded } of page) {
    await letGo(ctx, job, crowded).catch((thrown: unknown) =>
      ctx.report('the files of a build were not let go', { jobId: job.id, error: thrown }),
    );
  }
  return page.length < ctx.settings.retentionBatch ? 0 : (page.at(-1)?.job.number ?? 0);
}

interface Due {
  readonly job: BuildJob;
  /** Whether its project has newer builds enough. */
  readonly crowded: boolean;
}

/** Read without a lock: whatever is due is looked at again when its row is locked. */
async function dueAfter({ db, clock, settings }: BuildContext, after: number): Promise<Due[]> {
  const now = clock.now();
  const { keepFilesMs, keepLogsMs, keepBuildsPerProject, retentionBatch } = settings;
  const rows = await db.query(
    `SELECT * FROM (
       SELECT j.*, row_number() OVER (PARTITION BY org, project_id ORDER BY number DESC) AS place
       FROM build_jobs j
       WHERE completed_at IS NOT NULL AND (files_expired_at IS NULL OR logs_expired_at IS NULL)
     ) AS kept
     WHERE number > $1 AND (place > $2
       OR (files_expired_at IS NULL AND completed_at < $3) OR (logs_expired_at IS NULL AND completed_at < $4))
     ORDER BY number LIMIT $5`,
    [after, keepBuildsPerProject, now - keepFilesMs, now - keepLogsMs, retentionBatch],
  );
  return rows.map(({ place, ...row }) => ({
    job: toJob(row),
    crowded: Number(place) > keepBuildsPerProject,
  }));
}

async function letGo(ctx: BuildContext, job: BuildJob, crowded: boolean): Promise<void> {
  if (await servesItsProject(ctx, job)) return;
  const { clock, settings } = ctx;
  await ctx.db.transaction(async (tx) => {
    // A build that goes on from this one locks this row too, before it is written down (submit.ts).
    const locked = await lockJob(tx, job.id);
    if (locked === undefined || locked.completedAt === null) return;
    const [user] = await tx.query(
      'SELECT id FROM build_jobs WHERE previous_id = $1 AND completed_at IS NULL LIMIT 1',
      [job.id],
    );
    if (user !== undefined) return;
    const now = clock.now();
    const age = now - locked.completedAt;
    const change: { -readonly [K in keyof JobChange]: JobChange[K] } = {};
    if (locked.filesExpiredAt === null && (crowded || age > settings.keepFilesMs)) {
      await tx.query('DELETE FROM build_files WHERE job_id = $1', [job.id]);
      change.filesExpiredAt = now;
    }
    if (locked.logsExpiredAt === null && (crowded || age > settings.keepLogsMs)) {
      await tx.query('DELETE FROM build_logs WHERE job_id = $1', [job.id]);
      change.logsExpiredAt = now;
    }
    await changeJob(tx, locked, change);
  });
}

/** The newest ready build of a project keeps everything for as long as its preview exists. */
async function servesItsProject(ctx: BuildContext, job: BuildJob): Promise<boolean> {
  if (job.status !== 'ready') return false;
  const [newest] = await ctx.db.query<{ id: string }>(
    `SELECT id FROM build_jobs WHERE org = $1 AND project_id = $2 AND status = 'ready'
     ORDER BY completed_at DESC, number DESC LIMIT 1`,
    [job.org, job.projectId],
  );
  if (newest?.id !== job.id) return false;
  const life = await lifeOf(ctx, job);
  return life !== undefined && life.state !== 'expired';
}

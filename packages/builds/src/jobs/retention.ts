/**
 * Removes the files and logs of builds that ended long ago. The rows stay, because versions are counted from them.
 *
 * Each build is one transaction that deletes the due parts and records the deletion, so a crash leaves all of it or
 * nothing. One round examines a bounded number of builds; the next round continues after the last of them, so that
 * builds that must be kept do not block the others.
 */
import { type BuildErrorType, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import { previewStateOf } from '../preview/preview-state.ts';
import { type BuildJob, lockJob, toJob } from './job.ts';
import { changeJob, type JobChange } from './transition.ts';

/** The requested part of the build was removed. */
export class PartExpired extends TorporError {
  readonly errorType: BuildErrorType;

  constructor(part: 'files' | 'logs') {
    super('expired', `The ${part} of this build have been removed.`);
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

/** Examines the builds after the given number. Returns the number after which the next round continues. */
export async function retentionRound(ctx: BuildContext, after: number): Promise<number> {
  const page = await findDue(ctx, after);
  for (const { job, crowded: isBeyondLimit } of page) {
    await expireParts(ctx, job, isBeyondLimit).catch((thrown: unknown) =>
      ctx.report('the files of a build could not be removed', { jobId: job.id, error: thrown }),
    );
  }
  return page.length < ctx.settings.retentionBatch ? 0 : (page.at(-1)?.job.number ?? 0);
}

interface DueBuild {
  readonly job: BuildJob;
  /** Whether its project has `keepBuildsPerProject` newer builds. */
  readonly crowded: boolean;
}

/** Reads without a lock: each due build is checked again under the lock of its row. */
async function findDue({ db, clock, settings }: BuildContext, after: number): Promise<DueBuild[]> {
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

async function expireParts(ctx: BuildContext, job: BuildJob, crowded: boolean): Promise<void> {
  if (await isServedPreview(ctx, job)) return;
  const { clock, settings } = ctx;
  await ctx.db.transaction(async (tx) => {
    // A build that is based on this one locks this row before it is inserted (submit.ts).
    const locked = await lockJob(tx, job.id);
    if (locked === undefined || locked.completedAt === null) return;
    const [dependent] = await tx.query(
      'SELECT id FROM build_jobs WHERE previous_id = $1 AND completed_at IS NULL LIMIT 1',
      [job.id],
    );
    if (dependent !== undefined) return;
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

/** Whether the build is the newest ready one of its project and its preview exists. Such a build keeps everything. */
async function isServedPreview(ctx: BuildContext, job: BuildJob): Promise<boolean> {
  if (job.status !== 'ready') return false;
  const [newest] = await ctx.db.query<{ id: string }>(
    `SELECT id FROM build_jobs WHERE org = $1 AND project_id = $2 AND status = 'ready'
     ORDER BY completed_at DESC, number DESC LIMIT 1`,
    [job.org, job.projectId],
  );
  if (newest?.id !== job.id) return false;
  const preview = await previewStateOf(ctx, job);
  return preview !== undefined && preview.state !== 'expired';
}

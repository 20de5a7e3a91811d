/** The row of a build, and how to read it. Only the functions in `transition.ts` write it. */
import type { Queryable, Row, Transaction } from '@torpor/engine';
import {
  type BuildState,
  isId,
  type JobId,
  type RunnerName,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';

export interface BuildJob {
  readonly id: JobId;
  readonly org: string;
  readonly userId: string;
  readonly projectId: string;
  readonly plan: string;
  readonly runner: RunnerName;
  readonly goal: string;
  readonly wantedPort: number | null;
  readonly previousId: JobId | null;
  readonly previousKind: 'iteration' | 'rebuild' | null;
  readonly status: BuildState;
  readonly statusMessage: string;
  readonly lastEvent: number;
  readonly lastLine: number;
  readonly priority: number;
  readonly number: number;
  readonly admittedAt: number | null;
  readonly notBefore: number | null;
  readonly sandboxId: SandboxId | null;
  readonly port: number | null;
  readonly previewUrl: string | null;
  readonly buildVersion: string | null;
  readonly workspacePath: string | null;
  readonly sandboxPaused: 0 | 1;
  /** 1 when the pause after `ready` has happened or failed. */
  readonly pauseSettled: 0 | 1;
  readonly errorMessage: string | null;
  readonly debugId: string | null;
  readonly tidied: 0 | 1;
  readonly iterationsUsed: number;
  readonly iterationsGranted: number;
  readonly viewedAt: number | null;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly startedAt: number | null;
  readonly completedAt: number | null;
  readonly filesExpiredAt: number | null;
  readonly logsExpiredAt: number | null;
}

function camel(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

/** The columns of `build_jobs` are the fields of `BuildJob`; constraints of the table guarantee their values. */
export function toJob(row: Row): BuildJob {
  return Object.fromEntries(
    Object.entries(row).map(([name, value]) => [camel(name), value]),
  ) as unknown as BuildJob;
}

export async function findJob(db: Queryable, id: JobId): Promise<BuildJob | undefined> {
  const [row] = await db.query('SELECT * FROM build_jobs WHERE id = $1', [id]);
  return row === undefined ? undefined : toJob(row);
}

/** Locks the row until the commit. Every change of a job needs this lock. */
export async function lockJob(tx: Transaction, id: JobId): Promise<BuildJob | undefined> {
  const [row] = await tx.query('SELECT * FROM build_jobs WHERE id = $1 {FOR UPDATE}', [id]);
  return row === undefined ? undefined : toJob(row);
}

export interface Owner {
  readonly org: string;
  readonly user: string;
}

export function noSuchJob(): TorporError {
  return new TorporError('not_found', 'Job not found');
}

/** Answers "not found" for another owner's job too, so that its existence is not revealed (R44). */
export async function getJob(db: Queryable, { org, user }: Owner, id: string): Promise<BuildJob> {
  const job = isId('job', id) ? await findJob(db, id) : undefined;
  if (job === undefined || job.org !== org || job.userId !== user) throw noSuchJob();
  return job;
}

/** Newest first, with numbers below `before`. */
export async function listJobs(
  db: Queryable,
  { org, user }: Owner,
  before: number,
  limit: number,
): Promise<BuildJob[]> {
  const rows = await db.query(
    `SELECT * FROM build_jobs WHERE org = $1 AND user_id = $2 AND number < $3 ORDER BY number DESC LIMIT $4`,
    [org, user, before, limit],
  );
  return rows.map(toJob);
}

/** Rows of tracked jobs. Code that writes one holds the lock of its sandbox's row. */
import {
  type CheckpointId,
  JOB_LOSSES,
  type JobId,
  type JobLoss,
  type JobState,
  type SandboxId,
  TorporError,
  type TrackedJobKind,
  type TrackedJobView,
} from '@torpor/protocol';
import { listPlaceholders, placeholders } from '../ledger/placeholders.ts';
import type { Queryable, Row, SqlValue, Transaction } from '../ports/database.ts';

export interface TrackedJob {
  readonly id: JobId;
  readonly org: string;
  readonly sandboxId: SandboxId;
  readonly kind: TrackedJobKind;
  readonly name: string | null;
  /** The agent knows the job's process by this tag. */
  readonly tag: string;
  readonly command: string;
  readonly cwd: string | null;
  readonly pid: number | null;
  readonly state: JobState;
  readonly generation: number;
  readonly restarts: number;
  readonly forkedFrom: JobId | null;
  readonly createdAt: number;
  readonly startedAt: number;
  readonly endedAt: number | null;
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly lostReason: JobLoss | null;
}

const COLUMNS = `id, org, sandbox_id, kind, name, tag, command, cwd, pid, state, generation, restarts, forked_from,
  created_at, started_at, ended_at, exit_code, signal, lost_reason`;
const LIVE = `state IN ('running', 'suspended')`;

/** How many jobs of a sandbox are kept. Of the older ones, those that have ended are deleted. */
const KEPT_JOBS = 200;

function toJob(row: Row): TrackedJob {
  return {
    id: row['id'],
    org: row['org'],
    sandboxId: row['sandbox_id'],
    kind: row['kind'],
    name: row['name'],
    tag: row['tag'],
    command: row['command'],
    cwd: row['cwd'],
    pid: row['pid'],
    state: row['state'],
    generation: row['generation'],
    restarts: row['restarts'],
    forkedFrom: row['forked_from'],
    createdAt: row['created_at'],
    startedAt: row['started_at'],
    endedAt: row['ended_at'],
    exitCode: row['exit_code'],
    signal: row['signal'],
    lostReason: row['lost_reason'],
  } as TrackedJob;
}

export function viewJob(job: TrackedJob): TrackedJobView {
  const { org: _, tag: __, lostReason: reason, ...shown } = job;
  return { ...shown, lost: reason === null ? null : { reason, message: JOB_LOSSES[reason] } };
}

export async function findJob(db: Queryable, id: JobId): Promise<TrackedJob | undefined> {
  const [row] = await db.query(`SELECT ${COLUMNS} FROM jobs WHERE id = $1`, [id]);
  return row === undefined ? undefined : toJob(row);
}

/** A job of another organisation counts as absent (R104). */
export async function getJob(db: Queryable, id: JobId, org: string): Promise<TrackedJob> {
  const job = await findJob(db, id);
  if (job === undefined || job.org !== org) throw new TorporError('not_found', `There is no job ${id}.`);
  return job;
}

/** Newest first, beginning after `last`. */
export async function listJobs(
  db: Queryable,
  sandboxId: SandboxId,
  states: readonly JobState[],
  last: Pick<TrackedJob, 'id' | 'createdAt'> | undefined,
  limit: number,
): Promise<TrackedJob[]> {
  const rows = await db.query(
    `SELECT ${COLUMNS} FROM jobs
     WHERE sandbox_id = $1 AND (created_at < $2 OR (created_at = $2 AND id < $3))
       ${states.length === 0 ? '' : `AND state IN (${listPlaceholders(states.length, 5)})`}
     ORDER BY created_at DESC, id DESC LIMIT $4`,
    [sandboxId, last?.createdAt ?? Number.MAX_SAFE_INTEGER, last?.id ?? '', limit, ...states],
  );
  return rows.map(toJob);
}

/** All jobs of a sandbox, oldest first. There are few, because old ones are deleted. */
export async function allJobs(db: Queryable, sandboxId: SandboxId): Promise<TrackedJob[]> {
  const rows = await db.query(`SELECT ${COLUMNS} FROM jobs WHERE sandbox_id = $1 ORDER BY created_at, id`, [
    sandboxId,
  ]);
  return rows.map(toJob);
}

export async function runningJobs(db: Queryable, sandboxId: SandboxId): Promise<TrackedJob[]> {
  const rows = await db.query(
    `SELECT ${COLUMNS} FROM jobs WHERE sandbox_id = $1 AND state = 'running' ORDER BY created_at, id`,
    [sandboxId],
  );
  return rows.map(toJob);
}

/**
 * Every job that a start may change: jobs that are alive, services, and jobs that ran in the checkpoint. `captured` has
 * the tags of the last.
 */
export async function jobsToStart(
  tx: Transaction,
  sandboxId: SandboxId,
  checkpointId: CheckpointId,
): Promise<{ readonly jobs: TrackedJob[]; readonly captured: ReadonlySet<string> }> {
  const rows = await tx.query(
    `SELECT ${COLUMNS}, CASE WHEN c.checkpoint_id IS NULL THEN 0 ELSE 1 END AS captured
     FROM jobs LEFT JOIN (SELECT checkpoint_id, tag AS captured_tag FROM checkpoint_jobs WHERE checkpoint_id = $2) c
       ON c.captured_tag = jobs.tag
     WHERE sandbox_id = $1 AND (${LIVE} OR kind = 'service' OR c.checkpoint_id IS NOT NULL)
     ORDER BY created_at, id`,
    [sandboxId, checkpointId],
  );
  const captured = rows.filter((row) => row['captured'] === 1).map((row) => String(row['tag']));
  return { jobs: rows.map(toJob), captured: new Set(captured) };
}

/** The jobs that ran in a checkpoint, of any sandbox. */
export async function jobsInCheckpoint(tx: Transaction, checkpointId: CheckpointId): Promise<TrackedJob[]> {
  const rows = await tx.query(
    `SELECT ${COLUMNS} FROM jobs WHERE id IN (SELECT job_id FROM checkpoint_jobs WHERE checkpoint_id = $1)
     ORDER BY created_at, id`,
    [checkpointId],
  );
  return rows.map(toJob);
}

/** Records which jobs run in the memory of a checkpoint that is being sealed. */
export async function recordJobsInCheckpoint(
  tx: Transaction,
  checkpointId: CheckpointId,
  sandboxId: SandboxId,
): Promise<void> {
  await tx.query(
    `INSERT INTO checkpoint_jobs (checkpoint_id, tag, job_id)
     SELECT CAST($1 AS TEXT), tag, id FROM jobs WHERE sandbox_id = $2 AND ${LIVE}`,
    [checkpointId, sandboxId],
  );
}

export async function markRunningSuspended(tx: Transaction, sandboxId: SandboxId): Promise<TrackedJob[]> {
  const rows = await tx.query(
    `UPDATE jobs SET state = 'suspended' WHERE sandbox_id = $1 AND state = 'running' RETURNING ${COLUMNS}`,
    [sandboxId],
  );
  return rows.map(toJob);
}

export async function markLiveLost(
  tx: Transaction,
  sandboxId: SandboxId,
  reason: JobLoss,
  now: number,
): Promise<TrackedJob[]> {
  const rows = await tx.query(
    `UPDATE jobs SET state = 'lost', lost_reason = $2, ended_at = $3
     WHERE sandbox_id = $1 AND ${LIVE} RETURNING ${COLUMNS}`,
    [sandboxId, reason, now],
  );
  return rows.map(toJob);
}

const JOBS_AT_ONCE = 500;

/** Writes new and changed jobs, usually in one statement. */
export async function saveJobs(tx: Transaction, jobs: readonly TrackedJob[]): Promise<void> {
  for (let at = 0; at < jobs.length; at += JOBS_AT_ONCE) {
    const some = jobs.slice(at, at + JOBS_AT_ONCE).map(valuesOf);
    const params = some.flat();
    await tx.query(
      `INSERT INTO jobs (${COLUMNS}) VALUES ${placeholders(some.length, params.length / some.length)}
       ON CONFLICT (id) DO UPDATE SET state = excluded.state, generation = excluded.generation,
         restarts = excluded.restarts, started_at = excluded.started_at, ended_at = excluded.ended_at,
         exit_code = excluded.exit_code, signal = excluded.signal, lost_reason = excluded.lost_reason`,
      params,
    );
  }
}

function valuesOf(job: TrackedJob): SqlValue[] {
  return [
    job.id,
    job.org,
    job.sandboxId,
    job.kind,
    job.name,
    job.tag,
    job.command,
    job.cwd,
    job.pid,
    job.state,
    job.generation,
    job.restarts,
    job.forkedFrom,
    job.createdAt,
    job.startedAt,
    job.endedAt,
    job.exitCode,
    job.signal,
    job.lostReason,
  ];
}

/** Deletes the oldest processes that have ended, unless a checkpoint can restore them. */
export async function deleteOldJobs(tx: Transaction, sandboxId: SandboxId): Promise<void> {
  await tx.query(
    `DELETE FROM jobs WHERE sandbox_id = $1 AND kind = 'process' AND NOT (${LIVE})
       AND id NOT IN (SELECT id FROM jobs WHERE sandbox_id = $1 ORDER BY created_at DESC, id DESC LIMIT $2)
       AND NOT EXISTS (SELECT 1 FROM checkpoint_jobs c WHERE c.job_id = jobs.id)`,
    [sandboxId, KEPT_JOBS],
  );
}

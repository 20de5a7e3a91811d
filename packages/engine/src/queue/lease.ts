/**
 * What a worker may do with a job it has leased. Each statement finds the job only by the token it was claimed with. The
 * row is then locked, so that another claim comes wholly before or wholly after. When no row is found, the lease was
 * lost: the caller's whole transaction fails with `LeaseLost`.
 *
 * A lease that ran out counts as long as no other worker has claimed the job.
 */
import type { TorporError } from '@torpor/protocol';
import type { Database, Row, Transaction } from '../ports/database.ts';
import { type Job, LeaseLost, QUEUE_CHANNEL } from './job.ts';

/** Identifies a lease. */
export type LeasedJob = Pick<Job, 'id' | 'token'>;

/** Renews the lease, in a transaction of its own: the renewal must be visible while the job still runs. */
export async function heartbeat(db: Database, job: LeasedJob, now: number, leaseMs: number): Promise<void> {
  await db.transaction(async (tx) => {
    const rows = await tx.query(
      `UPDATE queue_jobs SET lease_until = $3
       WHERE id = $1 AND token = $2 AND state = 'leased' RETURNING id`,
      [job.id, job.token, now + leaseMs],
    );
    requireRow(job, rows);
  });
}

/** Ends the job in the caller's transaction, so that its effects and its end are atomic. */
export async function complete(tx: Transaction, job: LeasedJob, now: number): Promise<void> {
  const rows = await tx.query(
    `UPDATE queue_jobs SET state = 'done', ended_at = $3, lease_owner = NULL, lease_until = NULL
     WHERE id = $1 AND token = $2 AND state = 'leased' RETURNING id`,
    [job.id, job.token, now],
  );
  requireRow(job, rows);
}

export interface Failure {
  readonly error: TorporError;
  readonly now: number;
  /** When to try again, if attempts are left; absent: never. */
  readonly retryAt?: number;
}

/** Ends the attempt. Returns whether the job waits for another attempt or has failed for good. */
export async function fail(tx: Transaction, job: LeasedJob, failure: Failure): Promise<'waiting' | 'failed'> {
  const rows = await tx.query<{ state: 'waiting' | 'failed' }>(
    `UPDATE queue_jobs SET
       state = CASE WHEN attempts < max_attempts AND $5 = 1 THEN 'waiting' ELSE 'failed' END,
       ended_at = CASE WHEN attempts < max_attempts AND $5 = 1 THEN NULL ELSE CAST($3 AS {integer}) END,
       run_at = CASE WHEN $5 = 1 THEN $4 ELSE run_at END,
       last_error = $6, lease_owner = NULL, lease_until = NULL
     WHERE id = $1 AND token = $2 AND state = 'leased' RETURNING state`,
    [
      job.id,
      job.token,
      failure.now,
      failure.retryAt ?? 0,
      failure.retryAt === undefined ? 0 : 1,
      JSON.stringify(failure.error.toBody()),
    ],
  );
  const row = requireRow(job, rows);
  if (row.state === 'waiting') tx.notify(QUEUE_CHANNEL);
  return row.state;
}

/** Returns the job unfinished and does not count the attempt: the worker stops, the job is not at fault. */
export async function release(tx: Transaction, job: LeasedJob): Promise<void> {
  const rows = await tx.query(
    `UPDATE queue_jobs SET
       state = 'waiting', attempts = attempts - 1, lease_owner = NULL, lease_until = NULL
     WHERE id = $1 AND token = $2 AND state = 'leased' RETURNING id`,
    [job.id, job.token],
  );
  requireRow(job, rows);
  tx.notify(QUEUE_CHANNEL);
}

/** Fails the caller's transaction unless the lease is held. The row lock keeps the lease until the commit. */
export async function requireLease(tx: Transaction, job: LeasedJob): Promise<void> {
  const rows = await tx.query(
    `SELECT id FROM queue_jobs WHERE id = $1 AND token = $2 AND state = 'leased' {FOR UPDATE}`,
    [job.id, job.token],
  );
  requireRow(job, rows);
}

/** Ends a job as failed, whichever worker holds it. What that worker writes then fails. */
export async function withdraw(tx: Transaction, id: Job['id'], now: number): Promise<void> {
  await tx.query(
    `UPDATE queue_jobs SET
       state = 'failed', token = token + 1, ended_at = $2, lease_owner = NULL, lease_until = NULL
     WHERE id = $1 AND ended_at IS NULL`,
    [id, now],
  );
}

/** For a server that is the only one: the workers that held jobs of this queue are gone, so their leases end now. */
export async function expireLeases(tx: Transaction, queue: string, now: number): Promise<void> {
  await tx.query(
    `UPDATE queue_jobs SET lease_until = $2 WHERE queue = $1 AND state = 'leased' AND lease_until > $2`,
    [queue, now],
  );
}

function requireRow<R extends Row>(job: LeasedJob, rows: R[]): R {
  const [row] = rows;
  if (row === undefined) throw new LeaseLost(job);
  return row;
}

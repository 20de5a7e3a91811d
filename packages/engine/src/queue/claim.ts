/** Claims the next job of a queue. */
import { type JobId, TorporError } from '@torpor/protocol';
import type { Database, Queryable, Row, Transaction } from '../ports/database.ts';
import { parseStoredError } from '../stored-error.ts';
import type { Job } from './job.ts';

export interface ClaimOptions {
  /** In order of preference: a later queue is read only when nothing is due in the earlier ones. */
  readonly queues: readonly string[];
  /** The name of the claiming worker, for people who read the table. */
  readonly owner: string;
  /**
   * The time by the claiming server's clock. Servers compare each other's leases with their own clocks, so a lease must be
   * long compared with the difference between the clocks.
   */
  readonly now: number;
  readonly leaseMs: number;
  /**
   * Called in the transaction that marks a job as failed because the lease of its last allowed attempt ran out. Other rows
   * that depend on the failure are written there.
   */
  readonly onExhausted?: (tx: Transaction, job: Job, error: TorporError) => Promise<void>;
}

/** The next due job of the first queue that has one, leased to the caller; undefined when nothing is due. */
export async function claim(db: Database, options: ClaimOptions): Promise<Job | undefined> {
  for (const queue of options.queues) {
    for (const { priority, claimable_at } of await heads(db, queue)) {
      if (claimable_at > options.now) continue;
      const job = await claimAt(db, queue, priority, options);
      if (job !== undefined) return job;
    }
  }
  return undefined;
}

/** When the next job of these queues can be claimed; undefined when there is none. */
export async function nextClaimableAt(db: Queryable, queues: readonly string[]): Promise<number | undefined> {
  const found = await Promise.all(queues.map((queue) => heads(db, queue)));
  const times = found.flat().map(({ claimable_at }) => claimable_at);
  return times.length === 0 ? undefined : Math.min(...times);
}

async function claimAt(
  db: Database,
  queue: string,
  priority: number,
  options: ClaimOptions,
): Promise<Job | undefined> {
  for (;;) {
    const job = await db.transaction(async (tx) => {
      const [row] = await lease(tx, queue, priority, options);
      if (row === undefined) return undefined;
      const claimed = jobOf(row, options);
      if (row.state === 'failed') await options.onExhausted?.(tx, claimed, exhausted(claimed));
      return { claimed, leased: row.state === 'leased' };
    });
    if (job === undefined) return undefined;
    if (job.leased) return job.claimed;
  }
}

interface Head extends Row {
  readonly priority: number;
  readonly claimable_at: number;
}

/**
 * For each priority in use, most urgent first, when its first job can be claimed. Each step jumps to the next priority by
 * the index, so that neither many jobs of one priority nor many jobs that are not yet due are read. (Written with ORDER BY
 * and LIMIT: for min() and EXISTS, PostgreSQL may choose to read them all.)
 *
 * Locks nothing: the result is only a hint for `lease`. A job that is added between the two is found by the next claim,
 * which its notification triggers.
 */
function heads(db: Queryable, queue: string): Promise<Head[]> {
  return db.query<Head>(
    `WITH RECURSIVE used (priority) AS (
       SELECT (SELECT priority FROM queue_jobs
               WHERE queue = $1 AND ended_at IS NULL
               ORDER BY priority LIMIT 1)
       UNION ALL
       SELECT (SELECT priority FROM queue_jobs
               WHERE queue = $1 AND ended_at IS NULL AND priority > used.priority
               ORDER BY priority LIMIT 1)
       FROM used WHERE used.priority IS NOT NULL
     )
     SELECT priority, (SELECT claimable_at FROM queue_jobs
                       WHERE queue = $1 AND ended_at IS NULL AND priority = used.priority
                       ORDER BY claimable_at LIMIT 1) AS claimable_at
     FROM used WHERE priority IS NOT NULL
     ORDER BY priority`,
    [queue],
  );
}

interface LeasedRow extends Row {
  readonly id: JobId;
  readonly queue: string;
  readonly dedupe_key: string | null;
  readonly priority: number;
  readonly run_at: number;
  readonly payload: string;
  readonly state: 'leased' | 'failed';
  readonly attempts: number;
  readonly max_attempts: number;
  readonly token: number;
  readonly last_error: string | null;
  readonly created_at: number;
}

/**
 * Claims in one statement. The subselect locks the row it picks and skips rows that another claim has just locked, so
 * that many workers claim at once without waiting for each other or claiming the same job.
 *
 * A job whose last allowed lease ran out becomes `failed` instead: a job that kills its workers must not be retried for
 * ever.
 */
function lease(
  tx: Queryable,
  queue: string,
  priority: number,
  { owner, now, leaseMs }: ClaimOptions,
): Promise<LeasedRow[]> {
  return tx.query<LeasedRow>(
    `UPDATE queue_jobs SET
       token = token + 1,
       state = CASE WHEN attempts < max_attempts THEN 'leased' ELSE 'failed' END,
       lease_owner = CASE WHEN attempts < max_attempts THEN $4 END,
       lease_until = CASE WHEN attempts < max_attempts THEN CAST($5 AS {integer}) END,
       ended_at = CASE WHEN attempts < max_attempts THEN NULL ELSE CAST($3 AS {integer}) END,
       last_error = CASE WHEN state = 'leased' THEN $6 ELSE last_error END,
       attempts = CASE WHEN attempts < max_attempts THEN attempts + 1 ELSE attempts END
     WHERE id = (
       SELECT id FROM queue_jobs
       WHERE queue = $1 AND priority = $2 AND ended_at IS NULL AND claimable_at <= $3
       ORDER BY claimable_at, id LIMIT 1 {FOR UPDATE} {SKIP LOCKED}
     )
     RETURNING id, queue, dedupe_key, priority, run_at, payload, state, attempts, max_attempts, token,
       last_error, created_at`,
    [queue, priority, now, owner, now + leaseMs, JSON.stringify(leaseRanOut().toBody())],
  );
}

function jobOf(row: LeasedRow, { owner, now, leaseMs }: ClaimOptions): Job {
  return {
    id: row.id,
    queue: row.queue,
    dedupeKey: row.dedupe_key,
    priority: row.priority,
    runAt: row.run_at,
    payload: JSON.parse(row.payload),
    attempts: row.attempts,
    maxAttempts: row.max_attempts,
    owner,
    leaseUntil: now + leaseMs,
    token: row.token,
    lastError: parseStoredError(row.last_error),
    createdAt: row.created_at,
  };
}

function leaseRanOut(): TorporError {
  return new TorporError('unreachable', 'The worker that held the job let its lease run out.', {
    hint: 'The worker or its server died, or did not answer for longer than the lease.',
  });
}

function exhausted(job: Job): TorporError {
  return new TorporError(
    'unreachable',
    `The workers that held ${job.id} let its lease run out ${job.attempts} times.`,
  );
}

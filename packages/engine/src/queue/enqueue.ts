/** Adds a job to a queue, in the transaction that makes the job necessary. */
import type { JobId } from '@torpor/protocol';
import type { Queryable, Transaction } from '../ports/database.ts';
import { type JobState, QUEUE_CHANNEL } from './job.ts';

export interface NewJob {
  readonly id: JobId;
  readonly queue: string;
  readonly payload: unknown;
  readonly now: number;
  /** While a job of the queue with this key has not ended, no second job is added. */
  readonly dedupeKey?: string;
  /** Lower goes first; the default is 0. A queue should use only a handful of values. */
  readonly priority?: number;
  /** The earliest time at which the job may run; the default is now. */
  readonly runAt?: number;
  /** How often the job may be claimed before it counts as failed; the default is 5. */
  readonly maxAttempts?: number;
}

export interface Enqueued {
  readonly id: JobId;
  /**
   * False when a job with the key exists already. When that job is `leased`, its worker may have read its data before this
   * transaction changed them.
   */
  readonly created: boolean;
  readonly state: JobState;
}

export async function enqueue(tx: Transaction, job: NewJob): Promise<Enqueued> {
  // The existing job may end between the two statements; then the next insert succeeds.
  for (;;) {
    if (await insert(tx, job)) {
      tx.notify(QUEUE_CHANNEL);
      return { id: job.id, created: true, state: 'waiting' };
    }
    const [other] = await findByKey(tx, job);
    if (other !== undefined) return { id: other.id, created: false, state: other.state };
  }
}

/** The unique index decides between two concurrent inserts; on PostgreSQL the second waits for the first. */
async function insert(tx: Queryable, job: NewJob): Promise<boolean> {
  const rows = await tx.query(
    `INSERT INTO queue_jobs
       (id, queue, dedupe_key, priority, run_at, payload, state, attempts, max_attempts, token, created_at)
     VALUES ($1, $2, $3, $4, $5, $6, 'waiting', 0, $7, 0, $8)
     ON CONFLICT (queue, dedupe_key) WHERE dedupe_key IS NOT NULL AND ended_at IS NULL DO NOTHING
     RETURNING id`,
    [
      job.id,
      job.queue,
      job.dedupeKey ?? null,
      job.priority ?? 0,
      job.runAt ?? job.now,
      JSON.stringify(job.payload ?? null),
      job.maxAttempts ?? 5,
      job.now,
    ],
  );
  return rows.length > 0;
}

/** Takes no lock: a job that ends right afterwards did exist when the caller asked. */
function findByKey(tx: Queryable, job: NewJob): Promise<{ id: JobId; state: JobState }[]> {
  return tx.query(
    'SELECT id, state FROM queue_jobs WHERE queue = $1 AND dedupe_key = $2 AND ended_at IS NULL',
    [job.queue, job.dedupeKey ?? null],
  );
}

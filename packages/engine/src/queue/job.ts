/**
 * A durable job: work that is enqueued in the transaction that makes it necessary, and done at least once.
 *
 * A worker that claims a job holds a lease on it and must renew the lease. A worker that stops renewing loses the job to
 * the next claim. The token, which grows with every claim, keeps the former worker from writing.
 */
import { type ErrorBody, type JobId, TorporError } from '@torpor/protocol';

export type JobState = 'waiting' | 'leased' | 'done' | 'failed';

/** The channel that is notified of new jobs of all queues. */
export const QUEUE_CHANNEL = 'queue';

/** A job as its worker claimed it. */
export interface Job {
  readonly id: JobId;
  readonly queue: string;
  readonly dedupeKey: string | null;
  readonly priority: number;
  readonly runAt: number;
  readonly payload: unknown;
  /** How often the job was claimed, including this time. */
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly owner: string;
  readonly leaseUntil: number;
  readonly token: number;
  /** Why the previous attempt ended, if there was one. */
  readonly lastError: ErrorBody | null;
  readonly createdAt: number;
}

/** Another worker holds the job by now, or the job has ended. The transaction of the former worker is rolled back. */
export class LeaseLost extends TorporError {
  constructor({ id, token }: Pick<Job, 'id' | 'token'>) {
    super('conflict', `The lease on ${id} is no longer held.`, {
      hint: 'The job was claimed by another worker after its lease ran out, or it has ended.',
      details: { jobId: id, token },
    });
  }
}

/**
 * A durable job: work that is promised in the transaction that makes it necessary, and done at least once.
 *
 * Whoever claims a job holds it by a lease that it must renew. A holder that stops renewing loses the job
 * to the next claim, and the token, which grows with every claim, keeps the old holder from writing.
 */
import { type ErrorBody, type JobId, TorporError } from '@torpor/protocol';

export type JobState = 'waiting' | 'leased' | 'done' | 'failed';

/** The channel that is told of new jobs, whatever their queue. */
export const QUEUE_CHANNEL = 'queue';

/** A job in the hands of whoever claimed it. */
export interface Job {
  readonly id: JobId;
  readonly queue: string;
  readonly dedupeKey: string | null;
  readonly priority: number;
  readonly runAt: number;
  readonly payload: unknown;
  /** How often it was claimed, this time included. */
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly owner: string;
  readonly leaseUntil: number;
  readonly token: number;
  /** Why the attempt before this one ended, where there was one. */
  readonly lastError: ErrorBody | null;
  readonly createdAt: number;
}

/** Somebody else holds the job by now, or it has ended. What the former holder wrote is taken back. */
export class LeaseLost extends TorporError {
  constructor({ id, token }: Pick<Job, 'id' | 'token'>) {
    super('conflict', `The lease on ${id} is no longer held.`, {
      hint: 'The job was claimed by another worker after its lease ran out, or it has ended.',
      details: { jobId: id, token },
    });
  }
}

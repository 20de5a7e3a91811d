/** Letting go of jobs that have ended, so that the table does not grow for ever. */
import type { Transaction } from '../ports/database.ts';

/**
 * Deletes jobs that ended before a time, at most `limit` so that the transaction stays short, and says how
 * many. Nobody writes a job that has ended; the lock only keeps two that forget at once out of each
 * other's way.
 */
export async function deleteEndedJobs(tx: Transaction, before: number, limit: number): Promise<number> {
  const rows = await tx.query(
    `DELETE FROM queue_jobs WHERE id IN (
       SELECT id FROM queue_jobs WHERE ended_at IS NOT NULL AND ended_at < $1
       ORDER BY ended_at LIMIT $2 {FOR UPDATE} {SKIP LOCKED}
     ) RETURNING id`,
    [before, limit],
  );
  return rows.length;
}

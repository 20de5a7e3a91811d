import type { Transaction } from '../ports/database.ts';

/**
 * Deletes jobs that ended before a time, at most `limit` so that the transaction stays short, and returns how many. A job
 * that has ended is never written again; the lock only keeps two concurrent deletions from waiting for each other.
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

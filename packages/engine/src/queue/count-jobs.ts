import type { Queryable } from '../ports/database.ts';
import type { JobState } from './job.ts';

export type JobCounts = Readonly<Record<JobState, number>>;

/** How many jobs each queue has in each state. Queues without jobs are absent. Takes no lock: the numbers are for people. */
export async function countJobs(db: Queryable): Promise<Map<string, JobCounts>> {
  const rows = await db.query<{ queue: string; state: JobState; jobs: number }>(
    'SELECT queue, state, count(*) AS jobs FROM queue_jobs GROUP BY queue, state',
  );
  const byQueue = new Map<string, JobCounts>();
  for (const { queue, state, jobs } of rows) {
    const before = byQueue.get(queue) ?? { waiting: 0, leased: 0, done: 0, failed: 0 };
    byQueue.set(queue, { ...before, [state]: jobs });
  }
  return byQueue;
}

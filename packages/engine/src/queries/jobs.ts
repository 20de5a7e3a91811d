/** Tracked jobs of sandboxes. */
import type { JobId, JobState, Page, SandboxId } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { findJob, getJob, allJobs as listAllJobs, listJobs, type TrackedJob } from '../jobs/job.ts';
import { getSandbox } from '../sandbox.ts';
import { badCursor } from './bad-cursor.ts';

export async function job(ctx: Context, org: string, id: JobId): Promise<TrackedJob> {
  return getJob(ctx.db, id, org);
}

/** Newest first. Without states: jobs in any state. */
export async function jobs(
  ctx: Context,
  org: string,
  id: SandboxId,
  states: readonly JobState[],
  before: JobId | undefined,
  limit: number,
): Promise<Page<TrackedJob>> {
  await getSandbox(ctx.db, id, org);
  const last = before === undefined ? undefined : await findJob(ctx.db, before);
  if (before !== undefined && last?.sandboxId !== id) throw badCursor(before);
  const items = await listJobs(ctx.db, id, states, last, limit);
  return { items, nextCursor: items.length < limit ? null : (items.at(-1)?.id ?? null) };
}

/** All jobs of a sandbox that are kept, oldest first. */
export async function allJobs(ctx: Context, org: string, id: SandboxId): Promise<TrackedJob[]> {
  await getSandbox(ctx.db, id, org);
  return listAllJobs(ctx.db, id);
}

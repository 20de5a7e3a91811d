/** Tracked jobs of sandboxes. */
import type { JobId, JobState, Page, SandboxId } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { compareJobs as compareWithAgent } from '../jobs/compare.ts';
import { findJob, getJob, allJobs as listAllJobs, listJobs, type TrackedJob } from '../jobs/job.ts';
import { type BegunProcess, trackProcess as track } from '../jobs/track.ts';
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

/** Asks the agent of a running sandbox which of its jobs have ended, and records the answer. */
export async function compareJobs(ctx: Context, org: string, id: SandboxId): Promise<void> {
  const sandbox = await getSandbox(ctx.db, id, org);
  if (sandbox.state === 'running') await compareWithAgent(ctx, sandbox);
}

/** Makes a process that was started in the background of a running sandbox a job. */
export async function trackProcess(ctx: Context, org: string, process: BegunProcess): Promise<TrackedJob> {
  const tracked = await track(ctx, org, process);
  ctx.jobWatch.begin(process.sandboxId);
  return tracked;
}

/**
 * Compares jobs with the processes that the agent of a running sandbox lists (R108). When the agent does not answer,
 * nothing is changed.
 */
import type { Context } from '../context.ts';
import type { Processes } from '../ports/processes.ts';
import type { AgentAddress } from '../ports/runtime.ts';
import type { Sandbox } from '../sandbox.ts';
import { withTimeout } from '../with-timeout.ts';
import { runningJobs, type TrackedJob } from './job.ts';
import { isServing } from './serving.ts';
import { adoptProcess, recordEnd } from './track.ts';
import { agentOf } from './watch.ts';

interface JobComparison {
  /** Jobs whose process has ended, and processes that had no job. */
  readonly changed: readonly TrackedJob[];
  readonly hasRunning: boolean;
}

export async function compareJobs(ctx: Context, sandbox: Sandbox): Promise<JobComparison> {
  const { processes } = ctx;
  if (processes === undefined) return { changed: [], hasRunning: false };
  // Rows are read first: a process is started before its row is written, so a row without a process never gets one.
  const running = await runningJobs(ctx.db, sandbox.id);
  if (running.length === 0 && ctx.jobWatch.hasCompared(sandbox)) return { changed: [], hasRunning: false };
  const agent = await agentOf(ctx, sandbox);
  const found = await withTimeout(ctx.clock, ctx.settings.observeMs, 'Listing processes', (signal) =>
    processes.list(agent, signal),
  );
  const tags = new Set(found.map(({ tag }) => tag));
  const changes: (TrackedJob | undefined)[] = [];
  for (const job of running.filter(({ tag }) => !tags.has(tag))) {
    changes.push(await recordMissing(ctx, processes, agent, sandbox, job));
  }
  const known = new Set(running.map(({ tag }) => tag));
  for (const process of found.filter(({ tag }) => !known.has(tag))) {
    changes.push(await adoptProcess(ctx, sandbox, process));
  }
  ctx.jobWatch.noteCompared(sandbox);
  const changed = changes.filter((job) => job !== undefined);
  const hasEnded = new Set(changed.filter(({ state }) => state !== 'running').map(({ id }) => id));
  const hasRunning = [...running, ...changed].some(({ id }) => !hasEnded.has(id));
  return { changed, hasRunning };
}

async function recordMissing(
  ctx: Context,
  processes: Processes,
  agent: AgentAddress,
  sandbox: Sandbox,
  job: TrackedJob,
): Promise<TrackedJob | undefined> {
  if (await isServing(ctx, sandbox, job)) return undefined;
  const end = await withTimeout(ctx.clock, ctx.settings.observeMs, 'Asking how a process ended', (signal) =>
    processes.endOf(agent, job.tag, signal),
  );
  return recordEnd(ctx, job, end);
}

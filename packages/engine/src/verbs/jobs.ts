/** Jobs that callers begin or ask about. */
import type { SandboxId } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { compareJobs as compareWithAgent } from '../jobs/compare.ts';
import type { TrackedJob } from '../jobs/job.ts';
import { type StartedProcess, trackProcess as track } from '../jobs/track.ts';
import { getSandbox } from '../sandbox.ts';

/** Asks the agent of a running sandbox which of its jobs have ended, and records the answer. */
export async function compareJobs(ctx: Context, org: string, id: SandboxId): Promise<void> {
  const sandbox = await getSandbox(ctx.db, id, org);
  if (sandbox.state === 'running') await compareWithAgent(ctx, sandbox);
}

/** Makes a process that was started in the background of a running sandbox a job. */
export async function trackProcess(ctx: Context, org: string, process: StartedProcess): Promise<TrackedJob> {
  const tracked = await track(ctx, org, process);
  ctx.jobWatch.begin(process.sandboxId);
  return tracked;
}

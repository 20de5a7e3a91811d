/** Whether the sandbox of a ready build runs, is paused, or can never run again, read from the sandbox itself (R38). */
import { type BuildSandboxState, type SandboxState, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import type { BuildJob } from '../jobs/job.ts';
import type { SandboxSummary } from '../ports/sandboxes.ts';

export interface PreviewState {
  readonly state: BuildSandboxState;
  /** Why the sandbox has expired, or why its state is unknown; null otherwise. */
  readonly reason: string | null;
  /** Undefined when there is no such sandbox, or its state could not be read. */
  readonly summary: SandboxSummary | undefined;
}

const END_REASONS: Readonly<Partial<Record<SandboxState, string>>> = {
  killing: 'it was killed',
  killed: 'it was killed',
  failed: 'it did not start',
  lost: 'nothing usable is left of it',
};

/** Undefined for a build without a sandbox. */
export async function previewStateOf(ctx: BuildContext, job: BuildJob): Promise<PreviewState | undefined> {
  if (job.status !== 'ready' || job.sandboxId === null) return undefined;
  try {
    return fromSummary(await ctx.sandboxes.find(job.org, job.sandboxId));
  } catch (thrown) {
    if (!(thrown instanceof TorporError) || !thrown.retryable) throw thrown;
    return { state: 'unknown', reason: thrown.message, summary: undefined };
  }
}

function fromSummary(summary: SandboxSummary | undefined): PreviewState {
  if (summary === undefined) return { state: 'expired', reason: 'it does not exist any more', summary };
  const { state, reason, damage } = summary;
  const ended = END_REASONS[state];
  if (ended !== undefined) {
    return { state: 'expired', reason: reason === null ? ended : `${ended} (${reason})`, summary };
  }
  if (state !== 'paused') return { state: 'running', reason: null, summary };
  if (damage === null) return { state: 'paused', reason: null, summary };
  return { state: damage.sure ? 'expired' : 'unknown', reason: damage.reason, summary };
}

/** Whether the sandbox of a ready build runs, is paused, or can never run again; asked of the sandbox itself (R38). */
import { type BuildSandboxState, type SandboxState, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import type { BuildJob } from '../jobs/job.ts';
import type { SandboxGlance } from '../ports/sandboxes.ts';

export interface SandboxLife {
  readonly state: BuildSandboxState;
  /** Why the sandbox has expired, or why its state is unknown; null otherwise. */
  readonly reason: string | null;
  /** Undefined when there is no such sandbox, or when it could not be asked. */
  readonly glance: SandboxGlance | undefined;
}

const ENDED: Readonly<Partial<Record<SandboxState, string>>> = {
  killing: 'it was killed',
  killed: 'it was killed',
  failed: 'it did not start',
  lost: 'nothing usable is left of it',
};

/** Undefined for a build that has no sandbox. */
export async function lifeOf(ctx: BuildContext, job: BuildJob): Promise<SandboxLife | undefined> {
  if (job.status !== 'ready' || job.sandboxId === null) return undefined;
  try {
    return fromGlance(await ctx.sandboxes.find(job.org, job.sandboxId));
  } catch (thrown) {
    if (!(thrown instanceof TorporError) || !thrown.retryable) throw thrown;
    return { state: 'unknown', reason: thrown.message, glance: undefined };
  }
}

function fromGlance(glance: SandboxGlance | undefined): SandboxLife {
  if (glance === undefined) return { state: 'expired', reason: 'it does not exist any more', glance };
  const { state, reason, damage } = glance;
  const ended = ENDED[state];
  if (ended !== undefined) {
    return { state: 'expired', reason: reason === null ? ended : `${ended} (${reason})`, glance };
  }
  if (state !== 'paused') return { state: 'running', reason: null, glance };
  if (damage === null) return { state: 'paused', reason: null, glance };
  return { state: damage.sure ? 'expired' : 'unknown', reason: damage.reason, glance };
}

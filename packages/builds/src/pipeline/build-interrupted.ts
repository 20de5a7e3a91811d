/**
 * The sandbox of a build could not be reached because it moves to another node, or because its node is away. That says nothing
 * about the build: the queue runs it again, as it does when a worker has died (R20).
 */
import { TorporError } from '@torpor/protocol';
import type { Attempt } from './generate.ts';

export class BuildInterrupted extends TorporError {
  constructor(cause: TorporError) {
    super('unreachable', cause.message, { ...cause.toBody(), cause });
  }
}

/** How long the queue waits before it runs an interrupted build again. */
export const INTERRUPTED_RETRY_MS = 1_000;

/** A sandbox that moves is paused before it runs on the other node. */
function isBroken(error: TorporError): boolean {
  const { code, details } = error.toBody();
  return (
    code === 'unreachable' ||
    code === 'transitioning' ||
    (code === 'conflict' && details?.['state'] === 'paused')
  );
}

/** Undefined when the error is the build's own. */
export async function interruptionOf(
  { ctx, ownSandboxes }: Pick<Attempt, 'ctx' | 'ownSandboxes'>,
  thrown: unknown,
): Promise<BuildInterrupted | undefined> {
  if (!(thrown instanceof TorporError) || !isBroken(thrown)) return undefined;
  for (const id of ownSandboxes) if (await ctx.sandboxes.mayMove(id)) return new BuildInterrupted(thrown);
  return undefined;
}

/** Finds the newest checkpoint of a sandbox from whose files another sandbox can start, and the time of those files. */
import { type CheckpointId, type SandboxId, TorporError } from '@torpor/protocol';
import type { Context } from './context.ts';
import type { Session } from './session.ts';

const MAX_CHECKPOINTS = 20;

/**
 * The newest checkpoint may have damaged files; then an older one is used. Memory is not needed. Only the runtime that
 * wrote the files can start from them: `runtime` is the runtime of the session's spec, if the spec names one.
 */
export async function lastFiles(
  { engine }: Pick<Context, 'engine'>,
  org: string,
  id: SandboxId | null,
  runtime: string | undefined,
): Promise<CheckpointId | null> {
  if (id === null) return null;
  const configured = new Set(engine.runtimes().map(({ name }) => name));
  try {
    const { items } = await engine.checkpoints(org, id, MAX_CHECKPOINTS);
    const usable = items.find(
      (one) =>
        one.state === 'sealed' &&
        !one.faults.some(({ part }) => part === 'files') &&
        one.replayable &&
        one.parts.files &&
        configured.has(one.runtime) &&
        (runtime === undefined || one.runtime === runtime),
    );
    return usable?.id ?? null;
  } catch (thrown) {
    if (thrown instanceof TorporError && thrown.code === 'not_found') return null;
    throw thrown;
  }
}

/** The time of the files in a checkpoint. A template has no files of the session, so its time is that of the session. */
export async function timeOfFiles(
  { engine }: Pick<Context, 'engine'>,
  { org, createdAt }: Session,
  id: CheckpointId | null,
): Promise<number> {
  if (id === null) return createdAt;
  try {
    const checkpoint = await engine.checkpoint(org, id);
    return checkpoint.sandboxId === null ? createdAt : (checkpoint.sealedAt ?? checkpoint.createdAt);
  } catch (thrown) {
    if (thrown instanceof TorporError && thrown.code === 'not_found') return createdAt;
    throw thrown;
  }
}

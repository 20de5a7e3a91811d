/** The newest files that are left of a sandbox and that another may start from, and how old they are. */
import { type CheckpointId, type SandboxId, TorporError } from '@torpor/protocol';
import type { Context } from './context.ts';
import type { Session } from './session.ts';

const MAX_CHECKPOINTS = 20;

/**
 * The newest may have damaged files; then the one before it is better than nothing. Memory is not needed. Files can
 * only be started by the runtime that wrote them: `runtime` is the one that the session wants, if it wants one.
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

/** The time of the files in a checkpoint. Those of a template have nothing that the session ever wrote. */
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

/** The newest files that are left of a sandbox and that another may start from. */
import { type CheckpointId, type SandboxId, TorporError } from '@torpor/protocol';
import type { Context } from './context.ts';

const LOOKED_AT = 20;

/** The newest may have damaged files; then the one before it is better than nothing. Memory is not needed. */
export async function lastFiles(
  { engine }: Pick<Context, 'engine'>,
  org: string,
  id: SandboxId | null,
): Promise<CheckpointId | null> {
  if (id === null) return null;
  try {
    const { items } = await engine.checkpoints(org, id, LOOKED_AT);
    const usable = items.find(
      ({ state, faults, replayable, parts }) =>
        state === 'sealed' && replayable && parts.files && !faults.some(({ part }) => part === 'files'),
    );
    return usable?.id ?? null;
  } catch (thrown) {
    if (thrown instanceof TorporError && thrown.code === 'not_found') return null;
    throw thrown;
  }
}

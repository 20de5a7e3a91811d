/** The newest files that are left of a sandbox and that another may start from. */
import { type CheckpointId, type SandboxId, TorporError } from '@torpor/protocol';
import type { Context } from './context.ts';

const LOOKED_AT = 20;

/** A damaged one may be the newest; then the one before it is better than nothing. */
export async function lastFiles(
  { engine }: Pick<Context, 'engine'>,
  org: string,
  id: SandboxId | null,
): Promise<CheckpointId | null> {
  if (id === null) return null;
  try {
    const { items } = await engine.checkpoints(org, id, LOOKED_AT);
    const usable = items.find(
      ({ state, health, replayable, parts }) =>
        state === 'sealed' && health !== 'damaged' && replayable && parts.files,
    );
    return usable?.id ?? null;
  } catch (thrown) {
    if (thrown instanceof TorporError && thrown.code === 'not_found') return null;
    throw thrown;
  }
}

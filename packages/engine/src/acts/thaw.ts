/** Thaws a frozen sandbox. */
import { findCheckpoint } from '../checkpoints/checkpoint.ts';
import { type Context, runtimeOf } from '../context.ts';
import type { Sandbox } from '../sandbox.ts';
import { withTimeout } from '../with-timeout.ts';

/**
 * Returns whether the thaw succeeded; otherwise the reconciler finds the frozen instance and tries again. The runtime
 * gets the checkpoint that this run has sealed, whose layers must not change. The caller checks the fence where another
 * server may have taken over meanwhile.
 */
export async function thaw(ctx: Context, sandbox: Sandbox): Promise<boolean> {
  const instance = { sandboxId: sandbox.id, generation: sandbox.generation };
  try {
    const last =
      sandbox.checkpointId === null ? undefined : await findCheckpoint(ctx.db, sandbox.checkpointId);
    const sealed = last?.generation === sandbox.generation ? last.id : null;
    await withTimeout(ctx.clock, ctx.settings.callMs, 'Thawing', (callSignal) =>
      runtimeOf(ctx, sandbox).thaw(instance, sealed, callSignal),
    );
    return true;
  } catch (thrown) {
    ctx.report('thaw failed', { ...instance, error: thrown });
    return false;
  }
}

/** Opening the door again, which must never be what an operation fails of. */
import type { SandboxId } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { within } from '../within.ts';

/**
 * The same for an instance that is gone. What is still under way into it is ended first: not every runtime tells
 * those who wait there, and they would wait for ever.
 */
export async function cutAndOpenTrafficGate(ctx: Context, id: SandboxId): Promise<void> {
  await within(ctx.clock, ctx.settings.callMs, 'Resetting connections', () => ctx.gate.cut(id)).catch(
    (thrown: unknown) => ctx.report('connections could not be reset', { sandboxId: id, error: thrown }),
  );
  await openTrafficGate(ctx, id);
}

export async function openTrafficGate(ctx: Context, id: SandboxId): Promise<void> {
  await within(ctx.clock, ctx.settings.callMs, 'Opening the door', () => ctx.gate.open(id)).catch(
    (thrown: unknown) => ctx.report('the door could not be opened', { sandboxId: id, error: thrown }),
  );
}

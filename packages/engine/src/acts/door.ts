/** Opening the door again, which must never be what an operation fails of. */
import type { SandboxId } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { within } from '../within.ts';

export async function openDoor(ctx: Context, id: SandboxId): Promise<void> {
  await within(ctx.clock, ctx.settings.callMs, 'Opening the door', () => ctx.gate.open(id)).catch(
    (thrown: unknown) => ctx.report('the door could not be opened', { sandboxId: id, error: thrown }),
  );
}

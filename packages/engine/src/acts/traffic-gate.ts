/** Aborts exchanges at the traffic gate and opens it again. A failure is reported and never fails the operation. */
import type { SandboxId } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { withTimeout } from '../with-timeout.ts';

/**
 * For an instance that is gone. Its exchanges are aborted first: not every runtime closes their connections, and clients would
 * wait for ever.
 */
export async function abortAndOpenTrafficGate(ctx: Context, id: SandboxId): Promise<void> {
  await withTimeout(ctx.clock, ctx.settings.callMs, 'Aborting exchanges', () =>
    ctx.gate.abortExchanges(id),
  ).catch((thrown: unknown) =>
    ctx.report('the exchanges of a sandbox could not be aborted', { sandboxId: id, error: thrown }),
  );
  await openTrafficGate(ctx, id);
}

export async function openTrafficGate(ctx: Context, id: SandboxId): Promise<void> {
  await withTimeout(ctx.clock, ctx.settings.callMs, 'Opening the traffic gate', () =>
    ctx.gate.open(id),
  ).catch((thrown: unknown) =>
    ctx.report('the traffic gate could not be opened', { sandboxId: id, error: thrown }),
  );
}

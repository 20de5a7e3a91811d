/** How long a paused sandbox is kept: one write under its lock, outside of operations. */
import type { Actor, Retention, SandboxId, SandboxView } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { applyTransition } from '../ledger/transition.ts';
import { decide } from '../lifecycle.ts';
import { sandboxView } from '../queries/sandboxes.ts';
import { refusedBy } from '../refused-by.ts';
import { toStoredRetention } from '../retention/policy.ts';
import { lockSandbox, noSuchSandbox } from '../sandbox.ts';

/** Withdraws a deletion that was announced under the former policy; the new policy announces its own. */
export async function setRetention(
  ctx: Context,
  org: string,
  id: SandboxId,
  deletePausedAfterSeconds: Retention,
  by?: Actor,
): Promise<SandboxView> {
  await ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandbox(tx, id);
    if (sandbox.org !== org) throw noSuchSandbox(id);
    if (decide(sandbox.state, 'set_retention').kind === 'refused') {
      throw refusedBy(sandbox, `The sandbox is ${sandbox.state}; its retention cannot be set.`);
    }
    await tx.query('UPDATE sandboxes SET delete_paused_after_ms = $2, deletes_at = NULL WHERE id = $1', [
      id,
      toStoredRetention(deletePausedAfterSeconds),
    ]);
    const data = { deletePausedAfterSeconds };
    await applyTransition(ctx, tx, sandbox, 'set_retention', 'retention.set', data, {
      operationId: null,
      by,
    });
  });
  return sandboxView(ctx, org, id);
}

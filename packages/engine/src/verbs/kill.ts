/** Kill: supersedes whatever is under way, and ends the sandbox. */
import type { Reason, SandboxId } from '@torpor/protocol';
import { kill as destroy } from '../acts/kill.ts';
import { type Context, take } from '../context.ts';
import type { Operation } from '../operations/operation.ts';
import type { Caller } from '../operations/operations.ts';
import type { Sandbox } from '../sandbox.ts';
import type { Guard } from './pause.ts';

const EXPIRED = {
  change: { reason: 'It was paused for longer than its retention allows.' },
};

export async function kill(
  ctx: Context,
  caller: Caller,
  sandboxId: SandboxId,
  reason: Reason = 'request',
  guard?: Guard,
): Promise<{ readonly operation: Operation | null }> {
  let claimed: Sandbox | undefined;
  const accepted = await ctx.operations.accept(
    { kind: 'kill', sandboxId, caller, request: {}, reason },
    async (tx, sandbox, operation, superseded) => {
      await guard?.(tx, sandbox);
      if (sandbox.state === 'killing') {
        claimed = sandbox;
        return;
      }
      const data = { reason, superseded: superseded?.kind ?? null };
      const head = { operationId: operation.id, ...(reason === 'expired' ? EXPIRED : {}) };
      claimed = await take(ctx, tx, sandbox, 'kill', 'sandbox.killing', data, head);
    },
    async (handle) => {
      if (claimed !== undefined) await destroy(ctx, handle, claimed);
    },
  );
  if (accepted.is === 'already') return { operation: null };
  return { operation: await ctx.operations.finished(accepted.operationId, caller.signal) };
}

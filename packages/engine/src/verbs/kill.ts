/** Kill: supersedes the open operation, and ends the sandbox. */
import type { OperationId, Reason, SandboxId, SandboxView } from '@torpor/protocol';
import { kill as destroy } from '../acts/kill.ts';
import { type Context, runtimeOf } from '../context.ts';
import { applyTransition } from '../ledger/transition.ts';
import type { Succeeded } from '../operations/operation.ts';
import type { Caller } from '../operations/operations.ts';
import { sandboxView } from '../queries/sandboxes.ts';
import type { Sandbox } from '../sandbox.ts';
import type { Guard } from './pause.ts';

const EXPIRED = 'It was paused for longer than its retention allows.';

export interface Killed {
  /** Null when the sandbox had ended before. */
  readonly operation: { readonly id: OperationId } | null;
  readonly sandbox: SandboxView;
}

export async function kill(ctx: Context, caller: Caller, id: SandboxId): Promise<Killed> {
  const operation = await destroyAndEnd(ctx, caller, id, 'request', () => {});
  return { operation, sandbox: await sandboxView(ctx, caller.org, id) };
}

/** For the rounds, which need no answer. An open operation refuses it instead of being superseded. */
export async function killByPolicy(
  ctx: Context,
  { id, org }: Pick<Sandbox, 'id' | 'org'>,
  reason: Exclude<Reason, 'request'>,
  guard: Guard = () => {},
  why = reason === 'expired' ? EXPIRED : undefined,
): Promise<void> {
  await destroyAndEnd(ctx, { org }, id, reason, guard, why);
}

async function destroyAndEnd(
  ctx: Context,
  caller: Caller,
  sandboxId: SandboxId,
  reason: Reason,
  guard: Guard,
  /** What the sandbox says about its end. */
  why?: string,
): Promise<Succeeded<'kill'> | null> {
  const ended = await ctx.operations.runIdempotent({
    kind: 'kill',
    sandboxId,
    caller,
    request: {},
    reason,
    onAccept: async (tx, sandbox, operation, superseded) => {
      await guard(tx, sandbox);
      // Without the runtime nothing can be ended, so the sandbox stays as it is.
      runtimeOf(ctx, sandbox);
      if (sandbox.state === 'killing') return sandbox;
      const data = { reason, superseded: superseded?.kind ?? null };
      const fields = { operationId: operation.id, ...(why === undefined ? {} : { change: { reason: why } }) };
      return applyTransition(ctx, tx, sandbox, 'kill', 'sandbox.killing', data, fields);
    },
    execute: (handle, killing) => destroy(ctx, handle, killing),
  });
  return ended.is === 'already' ? null : ended.operation;
}

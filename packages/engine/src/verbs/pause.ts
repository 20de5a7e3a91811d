/** Pause: a running sandbox becomes a sealed checkpoint. */
import {
  type CheckpointId,
  type PauseRequest,
  type Reason,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import { type FilesInstead, reserve, SealFailed, seal } from '../acts/seal.ts';
import { type Context, requirePause, runtimeOf, take } from '../context.ts';
import { findLastDone, type Operation } from '../operations/operation.ts';
import type { Caller } from '../operations/operations.ts';
import type { Transaction } from '../ports/database.ts';
import type { Runtime } from '../ports/runtime.ts';
import { getSandbox, type Sandbox } from '../sandbox.ts';
import { within } from '../within.ts';

/** Looks again under the lock whether the cause still holds; throws when it does not. */
export type Guard = (tx: Transaction, sandbox: Sandbox) => void | Promise<void>;

/** What the rounds do otherwise than a caller. */
export interface AutomaticPause {
  readonly reason: Reason;
  readonly guard: Guard;
  readonly filesInstead: FilesInstead;
}

export interface Paused {
  readonly sandboxId: SandboxId;
  readonly checkpointId: CheckpointId;
  readonly operation: Operation | null;
  /** False when the sandbox was paused before. */
  readonly isNew: boolean;
}

export async function pause(
  ctx: Context,
  caller: Caller,
  sandboxId: SandboxId,
  request: PauseRequest,
  automatic?: AutomaticPause,
): Promise<Paused> {
  const { reason = 'request', guard, filesInstead = 'never' } = automatic ?? {};
  const { runtime: name } = await getSandbox(ctx.db, sandboxId, caller.org);
  const mode = sealMode(runtimeOf(ctx, { runtime: name }), request.mode, 'be paused');
  const checkpointId = ctx.ids.next('ckpt');
  let claimed: Sandbox | undefined;
  const accepted = await ctx.operations.accept(
    { kind: 'pause', sandboxId, caller, request: { mode }, reason },
    async (tx, sandbox, operation) => {
      await guard?.(tx, sandbox);
      await reserve(ctx, tx, sandbox, operation, checkpointId);
      const head = { operationId: operation.id };
      claimed = await take(ctx, tx, sandbox, 'pause', 'sandbox.pausing', { reason, mode }, head);
    },
    async (handle) => {
      if (claimed === undefined) return;
      const sandbox = claimed;
      const plan = {
        checkpointId,
        mode,
        reason,
        afterwards: 'pause',
        kept: false,
        name: null,
        expiresAt: null,
        filesInstead,
      } as const;
      await unlessSealFails(async () => {
        await seal(ctx, handle, sandbox, plan);
        retire(ctx, sandbox);
      });
    },
  );
  if (accepted.is === 'already') return alreadyPaused(ctx, accepted.sandbox);
  const operation = await ctx.operations.finished(accepted.operationId, caller.signal);
  const { checkpointId: made } = operation.result as { checkpointId: CheckpointId };
  return { sandboxId, checkpointId: made, operation, isNew: true };
}

async function alreadyPaused(ctx: Context, sandbox: Sandbox): Promise<Paused> {
  const operation = await findLastDone(ctx.db, sandbox.id, ['pause', 'recover']);
  if (sandbox.checkpointId === null) throw new TorporError('internal', 'A paused sandbox has no checkpoint.');
  const { id: sandboxId, checkpointId } = sandbox;
  return { sandboxId, checkpointId, operation: operation ?? null, isNew: false };
}

/** The capability is asked before anything is written: what cannot be paused is never recorded as paused. */
export function sealMode(
  runtime: Runtime,
  wanted: 'memory' | 'files' | undefined,
  what: string,
): 'memory' | 'files' {
  const best = requirePause(runtime, what);
  if (wanted === 'memory' && best === 'files') {
    throw new TorporError('capability_unsupported', `The runtime "${runtime.name}" keeps files, not memory.`);
  }
  return wanted ?? best;
}

/** A seal that failed has ended its operation itself; there is nothing more to do. */
export async function unlessSealFails(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (thrown) {
    if (!(thrown instanceof SealFailed)) throw thrown;
  }
}

/** The frozen instance of a paused sandbox is of no more use. Nobody waits for its end but the next start. */
function retire(ctx: Context, sandbox: Sandbox): void {
  const upTo = { sandboxId: sandbox.id, generation: sandbox.generation };
  ctx.background.run(`destroying the paused instance of ${sandbox.id}`, () =>
    within(ctx.clock, ctx.settings.callMs, 'Destroying', (signal) =>
      runtimeOf(ctx, sandbox).destroy(upTo, signal),
    ),
  );
}

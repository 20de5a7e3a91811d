/** Pause: a running sandbox becomes a sealed checkpoint. */
import {
  type CheckpointId,
  type CheckpointView,
  type OperationView,
  type PauseRequest,
  type Reason,
  type SandboxId,
  type SandboxView,
  TorporError,
} from '@torpor/protocol';
import { beginSeal, seal } from '../acts/seal.ts';
import { type FilesOnlyFallback, noExtraWrites, type SealPlan, sealMode } from '../acts/seal-plan.ts';
import { type Context, runtimeOf } from '../context.ts';
import { findOperationOfState, type Operation } from '../operations/operation.ts';
import type { Caller } from '../operations/operations.ts';
import type { Transaction } from '../ports/database.ts';
import { checkpoint } from '../queries/checkpoints.ts';
import { withPhases } from '../queries/operations.ts';
import { sandboxView } from '../queries/sandboxes.ts';
import type { Durability } from '../replication/replicator.ts';
import { getSandbox, type Sandbox } from '../sandbox.ts';
import { withTimeout } from '../with-timeout.ts';

/** Checks under the sandbox's lock whether the cause still holds; throws when it does not. */
export type Guard = (tx: Transaction, sandbox: Sandbox) => void | Promise<void>;

/** What a pause by policy does otherwise than a pause that a caller asks for. */
export interface PausePolicy {
  readonly reason: Reason;
  readonly guard: Guard;
  readonly filesOnlyFallback: FilesOnlyFallback;
}

export interface Paused {
  /**
   * The operation that paused the sandbox: this one, or an earlier one when the sandbox was already paused. Null when the
   * earlier operation failed after it had paused the sandbox.
   */
  readonly operation: OperationView | null;
  /** False when the sandbox was already paused. */
  readonly paused: boolean;
  readonly sandbox: SandboxView;
  readonly checkpoint: CheckpointView;
  readonly replicated: boolean;
  /** Why a caller that asked for a replicated checkpoint did not get one. */
  readonly replicatedReason: string | null;
}

export async function pause(
  ctx: Context,
  caller: Caller,
  id: SandboxId,
  request: PauseRequest = {},
): Promise<Paused> {
  refuseWithoutStore(ctx, request);
  const { operation, checkpointId, isNew } = await sealAndPause(ctx, caller, id, request, BY_REQUEST);
  const wanted = request.durability ?? ctx.durability;
  const reached = wanted === 'replicated' ? await waitForReplica(ctx, caller, checkpointId) : undefined;
  const sealed = await checkpoint(ctx, caller.org, checkpointId);
  return {
    operation: operation === null ? null : await withPhases(ctx, operation),
    paused: isNew,
    sandbox: await sandboxView(ctx, caller.org, id),
    checkpoint: sealed,
    replicated: reached?.replicated ?? sealed.replicated === true,
    replicatedReason: reached?.replicated === false ? reached.reason : null,
  };
}

/** Before anything is changed: a durability that this server cannot reach is refused. */
function refuseWithoutStore(ctx: Context, { durability }: PauseRequest): void {
  if (durability !== 'replicated' || ctx.replicator !== undefined) return;
  throw new TorporError(
    'capability_unsupported',
    'This server has no store outside its machine, so no checkpoint can be replicated. Nothing was changed.',
    { hint: 'Start the server with --store, or leave durability out.' },
  );
}

/** The pause is done, whatever comes of the replication. The caller's signal ends the wait. Undefined without a store. */
async function waitForReplica(
  ctx: Context,
  caller: Caller,
  id: CheckpointId,
): Promise<Durability | undefined> {
  const signals = caller.signal === undefined ? [ctx.stopping] : [caller.signal, ctx.stopping];
  return ctx.replicator?.wait(id, AbortSignal.any(signals));
}

/** For the rounds, which need no answer. */
export async function pauseByPolicy(
  ctx: Context,
  { id, org, config: { pauseMode } }: Sandbox,
  policy: PausePolicy,
): Promise<void> {
  await sealAndPause(ctx, { org }, id, pauseMode === undefined ? {} : { mode: pauseMode }, policy);
}

const BY_REQUEST: PausePolicy = { reason: 'request', guard: () => {}, filesOnlyFallback: 'never' };

interface PausedBy {
  readonly operation: Operation | null;
  readonly checkpointId: CheckpointId;
  readonly isNew: boolean;
}

async function sealAndPause(
  ctx: Context,
  caller: Caller,
  sandboxId: SandboxId,
  request: PauseRequest,
  { reason, guard, filesOnlyFallback }: PausePolicy,
): Promise<PausedBy> {
  const { runtime } = await getSandbox(ctx.db, sandboxId, caller.org);
  const mode = sealMode(runtimeOf(ctx, { runtime }), request.mode, 'be paused');
  const plan: SealPlan = {
    checkpointId: ctx.ids.next('ckpt'),
    mode,
    reason,
    afterwards: 'stays paused',
    kept: false,
    name: null,
    expiresAt: null,
    filesOnlyFallback,
    extraWrites: noExtraWrites,
  };
  const ended = await ctx.operations.runIdempotent({
    kind: 'pause',
    sandboxId,
    caller,
    request: { mode },
    reason,
    onAccept: async (tx, sandbox, operation) => {
      await guard(tx, sandbox);
      return beginSeal(ctx, tx, sandbox, operation, plan);
    },
    execute: async (handle, pausing) => {
      const sealed = await seal(ctx, handle, pausing, plan);
      if (sealed.is === 'sealed') destroyPaused(ctx, pausing, plan.checkpointId);
    },
  });
  if (ended.is === 'already') return alreadyPaused(ctx, ended.sandbox);
  const { operation } = ended;
  return { operation, checkpointId: requireCheckpoint(operation.result.checkpointId), isNew: true };
}

async function alreadyPaused(ctx: Context, sandbox: Sandbox): Promise<PausedBy> {
  const operation = await findOperationOfState(ctx.db, sandbox.id, 'pause');
  const checkpointId = requireCheckpoint(sandbox.checkpointId);
  return { operation: operation ?? null, checkpointId, isNew: false };
}

function requireCheckpoint(id: CheckpointId | null | undefined): CheckpointId {
  if (id === null || id === undefined) {
    throw new TorporError('internal', 'A paused sandbox has no checkpoint.');
  }
  return id;
}

/**
 * Gives up the frozen instance in the background: the runtime destroys it, or keeps it as a cache of the checkpoint. The
 * answer to the pause does not wait for this; the next start does.
 */
function destroyPaused(ctx: Context, sandbox: Sandbox, keep: CheckpointId): void {
  const upTo = { sandboxId: sandbox.id, generation: sandbox.generation };
  ctx.background.run(`destroying the paused instance of ${sandbox.id}`, () =>
    withTimeout(ctx.clock, ctx.settings.callMs, 'Destroying', (signal) =>
      runtimeOf(ctx, sandbox).destroy(upTo, signal, keep),
    ),
  );
}

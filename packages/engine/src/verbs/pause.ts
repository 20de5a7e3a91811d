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
import {
  beginSeal,
  type FilesOnlyFallback,
  noExtraWrites,
  type SealPlan,
  sealMode,
} from '../acts/begin-seal.ts';
import { finishSeal } from '../acts/finish-seal.ts';
import { seal } from '../acts/seal.ts';
import { type Context, runtimeOf } from '../context.ts';
import { findLastSucceeded, type Operation } from '../operations/operation.ts';
import type { Caller } from '../operations/operations.ts';
import type { Transaction } from '../ports/database.ts';
import { checkpoint } from '../queries/checkpoints.ts';
import { withPhases } from '../queries/operations.ts';
import { sandboxView } from '../queries/sandboxes.ts';
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
  /** Of a sandbox that was paused before: the operation that paused it, where there is one. */
  readonly operation: OperationView | null;
  /** False when the sandbox was paused before. */
  readonly paused: boolean;
  readonly sandbox: SandboxView;
  readonly checkpoint: CheckpointView;
}

export async function pause(
  ctx: Context,
  caller: Caller,
  id: SandboxId,
  request: PauseRequest = {},
): Promise<Paused> {
  const { operation, checkpointId, isNew } = await sealAndPause(ctx, caller, id, request, BY_REQUEST);
  return {
    operation: operation === null ? null : await withPhases(ctx, operation),
    paused: isNew,
    sandbox: await sandboxView(ctx, caller.org, id),
    checkpoint: await checkpoint(ctx, caller.org, checkpointId),
  };
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
      if (sealed.is === 'failed') return;
      await finishSeal(ctx, handle, pausing, plan);
      destroyPaused(ctx, pausing);
    },
  });
  if (ended.is === 'already') return alreadyPaused(ctx, ended.sandbox);
  const { operation } = ended;
  return { operation, checkpointId: requireCheckpoint(operation.result.checkpointId), isNew: true };
}

async function alreadyPaused(ctx: Context, sandbox: Sandbox): Promise<PausedBy> {
  const operation = await findLastSucceeded(ctx.db, sandbox.id, ['pause', 'recover']);
  const checkpointId = requireCheckpoint(sandbox.checkpointId);
  return { operation: operation ?? null, checkpointId, isNew: false };
}

function requireCheckpoint(id: CheckpointId | null | undefined): CheckpointId {
  if (id === null || id === undefined) {
    throw new TorporError('internal', 'A paused sandbox has no checkpoint.');
  }
  return id;
}

/** The frozen instance of a paused sandbox has no more use. Only the next start waits for its end. */
function destroyPaused(ctx: Context, sandbox: Sandbox): void {
  const upTo = { sandboxId: sandbox.id, generation: sandbox.generation };
  ctx.background.run(`destroying the paused instance of ${sandbox.id}`, () =>
    withTimeout(ctx.clock, ctx.settings.callMs, 'Destroying', (signal) =>
      runtimeOf(ctx, sandbox).destroy(upTo, signal),
    ),
  );
}

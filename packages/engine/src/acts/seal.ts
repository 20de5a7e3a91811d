/**
 * Seals a checkpoint of a running sandbox: the act behind pause, snapshot, fork and rollback.
 *
 * Any failure before the commit leaves the sandbox running with everything that it had except its connections: those to
 * the outside are reset, and exchanges with clients through the gateway are aborted. After the commit of a pause the frozen
 * instance is never thawed: the runtime destroys it, or keeps it as a cache of the checkpoint.
 *
 * The functions are in the order in which a seal calls them. `thaw.ts` undoes a failed seal. After a seal that does not leave
 * the sandbox paused, `finish-seal.ts` follows.
 */
import { type CheckpointId, type Loss, type SandboxId, type Skipped, TorporError } from '@torpor/protocol';
import { findCheckpoint, markSealed, nameCheckpoint, type SealResult } from '../checkpoints/checkpoint.ts';
import { stageCheckpoint } from '../checkpoints/stage.ts';
import { type Context, runtimeOf } from '../context.ts';
import { deleteActivity } from '../idleness.ts';
import { jobsAtSeal } from '../jobs/follow.ts';
import { applyTransition, recordEvent } from '../ledger/transition.ts';
import { endOperation, type Operation, requireFence, setPhase } from '../operations/operation.ts';
import {
  fencedTransaction,
  fencedTransactionChecked,
  leavesOperationOpen,
  type OperationHandle,
  passFaultPoint,
} from '../operations/operation-handle.ts';
import type { Staging } from '../ports/checkpoint-store.ts';
import type { Transaction } from '../ports/database.ts';
import type { FreezePurpose, Instance, Runtime } from '../ports/runtime.ts';
import type { Sandbox } from '../sandbox.ts';
import { withTimeout } from '../with-timeout.ts';
import { allowsFilesOnly, asCaptureFailure, CaptureFailure, insertFilesOnlyRow } from './capture-failure.ts';
import { insertCheckpointRow, type SealPlan } from './seal-plan.ts';
import { undoSeal } from './thaw.ts';
import { openTrafficGate } from './traffic-gate.ts';

/** `failed`: the sandbox runs again and the operation has ended with the cause. */
export type SealOutcome<T> = { readonly is: 'sealed'; readonly extraResult: T } | { readonly is: 'failed' };

/** A sealed checkpoint. `skipped` names the memory when only the files were sealed. */
interface SealedCapture {
  readonly checkpointId: CheckpointId;
  readonly sealed: SealResult;
  readonly skipped: readonly Skipped[];
}

/** What every step of one seal needs. */
interface SealRun {
  readonly ctx: Context;
  readonly handle: OperationHandle;
  readonly runtime: Runtime;
  readonly instance: Instance;
  readonly sandbox: Sandbox;
}

/** Part of the accepting transaction: the checkpoint's row, and the state `pausing` unless the seal is in place. */
export async function beginSeal(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  operation: Operation,
  plan: Pick<SealPlan, 'checkpointId' | 'mode' | 'reason' | 'afterwards'>,
): Promise<Sandbox> {
  await insertCheckpointRow(ctx, tx, sandbox, operation, plan.checkpointId);
  if (plan.afterwards === 'runs on') return sandbox;
  const { reason, mode } = plan;
  return applyTransition(
    ctx,
    tx,
    sandbox,
    'pause',
    'sandbox.pausing',
    { reason, mode },
    { operationId: operation.id },
  );
}

/**
 * Freezes the sandbox, writes its checkpoint and commits it. Opens the gate of a sandbox that stays paused; for the others
 * `finishSeal` follows.
 */
export async function seal<T>(
  ctx: Context,
  handle: OperationHandle,
  sandbox: Sandbox,
  plan: SealPlan<T>,
): Promise<SealOutcome<T>> {
  const { operation, signal, trace } = handle;
  const instance: Instance = { sandboxId: sandbox.id, generation: sandbox.generation };
  const run: SealRun = { ctx, handle, runtime: runtimeOf(ctx, sandbox), instance, sandbox };
  const began = ctx.clock.monotonic();
  let extraResult: T;
  try {
    await passFaultPoint(ctx, operation, 'seal-accepted');
    await freeze(run, plan.afterwards === 'runs on' ? 'snapshot' : 'pause');
    const sealed = await captureWithFallback(run, plan);
    await passFaultPoint(ctx, operation, 'seal-stored');
    signal.throwIfAborted();
    const durationMs = Math.round(ctx.clock.monotonic() - began);
    trace.enter('commit');
    extraResult = await commitCheckpoint(ctx, operation, plan, sealed, durationMs);
    ctx.replicator?.nudge();
  } catch (thrown) {
    if (leavesOperationOpen(thrown)) {
      // Another server or the reconciler finishes the operation. The gate is in this process, so it is opened here.
      await openTrafficGate(ctx, sandbox.id);
      throw thrown;
    }
    trace.fail(thrown);
    trace.enter('undo');
    await undoSeal(ctx, operation, sandbox, TorporError.from(thrown));
    return { is: 'failed' };
  }
  if (plan.afterwards === 'stays paused') {
    await passFaultPoint(ctx, operation, 'seal-committed');
    trace.enter('open');
    await openTrafficGate(ctx, sandbox.id);
  }
  return { is: 'sealed', extraResult };
}

/** Closes the gate, waits a bounded time for active requests, freezes, and aborts the exchanges that are left. */
async function freeze({ ctx, handle, runtime, instance }: SealRun, purpose: FreezePurpose): Promise<void> {
  const { operation, signal, trace } = handle;
  const { callMs, drainMs } = ctx.settings;
  const { sandboxId } = instance;
  const call = <T>(what: string, work: (callSignal: AbortSignal) => Promise<T>) =>
    withTimeout(ctx.clock, callMs, what, work, signal);

  trace.enter('drain');
  ctx.jobWatch.end(sandboxId);
  await call('Closing the traffic gate', () => ctx.gate.close(sandboxId));
  await passFaultPoint(ctx, operation, 'seal-closed');
  await withTimeout(
    ctx.clock,
    drainMs,
    'Draining',
    (callSignal) => ctx.gate.drain(sandboxId, callSignal),
    signal,
  ).catch((thrown) => {
    // After the timeout the remaining exchanges are aborted below; only an aborted operation stops the seal.
    signal.throwIfAborted();
    ctx.report('drain ended early', { sandboxId, error: thrown });
  });
  trace.enter('sync');
  await call('Writing dirty data back', (callSignal) => runtime.presync(instance, callSignal));
  await passFaultPoint(ctx, operation, 'seal-synced');
  trace.enter('freeze');
  // Another server may have undone this operation meanwhile: it would not thaw what is frozen now.
  await requireFence(ctx.db, operation);
  await call('Freezing', (callSignal) => runtime.freeze(instance, callSignal, purpose));
  await recordPhase(ctx, operation, 'frozen');
  await passFaultPoint(ctx, operation, 'seal-frozen');
  await call('Aborting exchanges', () => ctx.gate.abortExchanges(sandboxId));
  await passFaultPoint(ctx, operation, 'seal-aborted');
}

/** Records how far an operation has come. Throws `FenceLost` when another server has taken the operation over. */
async function recordPhase(ctx: Context, operation: Operation, phase: 'frozen' | 'captured'): Promise<void> {
  await fencedTransaction(ctx, operation, async (tx, sandbox) => {
    await setPhase(tx, operation, phase);
    const data = { kind: operation.kind, phase };
    await recordEvent(ctx, tx, sandbox, 'operation.phase', data, { operationId: operation.id });
  });
}

/** Captures what the plan wants. After a failed capture of memory, where the plan allows it, captures files only. */
async function captureWithFallback(
  run: SealRun,
  plan: Pick<SealPlan, 'checkpointId' | 'mode' | 'filesOnlyFallback'>,
): Promise<SealedCapture> {
  const { ctx, handle } = run;
  const { checkpointId, mode, filesOnlyFallback } = plan;
  try {
    return { checkpointId, sealed: await captureAndSeal(run, plan), skipped: [] };
  } catch (thrown) {
    if (mode === 'files' || handle.signal.aborted || !(thrown instanceof CaptureFailure)) throw thrown;
    if (!allowsFilesOnly(filesOnlyFallback, thrown)) throw thrown;
    const { code, message: why } = thrown;
    handle.trace.fail(thrown);
    const filesOnlyId = await insertFilesOnlyRow(ctx, handle.operation, why);
    const filesOnly = { checkpointId: filesOnlyId, mode: 'files' } as const;
    const sealed = await captureAndSeal(run, filesOnly);
    return { checkpointId: filesOnlyId, sealed, skipped: [{ part: 'memory', code, why }] };
  }
}

/** Captures the frozen instance into a staging directory and seals that in the store. */
async function captureAndSeal(
  { ctx, handle, runtime, instance, sandbox }: SealRun,
  { checkpointId, mode }: Pick<SealPlan, 'checkpointId' | 'mode'>,
): Promise<SealResult> {
  const { callMs, captureMs } = ctx.settings;
  const call = <T>(ms: number, what: string, work: (callSignal: AbortSignal) => Promise<T>) =>
    withTimeout(ctx.clock, ms, what, work, handle.signal);
  handle.trace.enter('capture');
  const staging = await call(callMs, 'Staging the checkpoint', (callSignal) =>
    stageCheckpoint(ctx, checkpointId, callSignal),
  );
  const captured = await call(mode === 'memory' ? captureMs : callMs, 'Capturing', (callSignal) =>
    runtime.capture(instance, mode, staging, callSignal),
  ).catch((thrown: unknown) => {
    throw mode === 'memory' && !handle.signal.aborted ? asCaptureFailure(TorporError.from(thrown)) : thrown;
  });
  await recordPhase(ctx, handle.operation, 'captured');
  await passFaultPoint(ctx, handle.operation, 'seal-captured');
  handle.trace.enter('seal');
  return sealInStore(ctx, staging, captured, sandbox, handle.signal);
}

/** Makes captured bytes durable and checks them: an empty checkpoint is a failure (R94). */
export async function sealInStore(
  ctx: Context,
  staging: Staging,
  captured: SealResult['captured'],
  origin: { readonly id: SandboxId | null; readonly baseId: CheckpointId | null; readonly runtime: string },
  signal: AbortSignal,
): Promise<SealResult> {
  if (!captured.parts.files) throw nothingCaptured(staging);
  if (captured.external !== null) {
    return { captured, location: captured.external.location, bytes: captured.external.bytes ?? 0 };
  }
  const { checkpointId } = staging;
  const { parts, needs, contents = [] } = captured;
  const { bytes } = await withTimeout(
    ctx.clock,
    ctx.settings.callMs,
    'Sealing the checkpoint',
    async (callSignal) => {
      const createdAt = ctx.clock.now();
      const provenance = {
        sandboxId: origin.id,
        parentId: origin.baseId,
        runtime: origin.runtime,
        createdAt,
      };
      const sealed = await ctx.store.seal(
        staging,
        { checkpointId, ...provenance, parts, needs, contents },
        callSignal,
      );
      // Reject an empty checkpoint even if the runtime reported files.
      if (sealed.manifest.contents.length === 0) throw nothingCaptured(staging);
      // The frozen instance is given up only for a checkpoint that its runtime would start from.
      const verdict = await runtimeOf(ctx, origin).checkUsable(
        { id: checkpointId, parts, needs, path: ctx.store.path(checkpointId) },
        callSignal,
      );
      if (!parts.memory || verdict.usable) return sealed;
      throw asCaptureFailure(
        new TorporError('checkpoint_incompatible', `The memory just captured: ${verdict.why}.`, {
          checkpointId,
        }),
      );
    },
    signal,
  );
  const fingerprint = runtimeOf(ctx, origin).fingerprint?.();
  return { captured, location: ctx.store.location(checkpointId), bytes, fingerprint };
}

function nothingCaptured({ checkpointId }: Staging): TorporError {
  const message = 'The runtime captured no files; such a checkpoint is not sealed.';
  return new TorporError('checkpoint_corrupt', message, { checkpointId });
}

/** One transaction: the checkpoint is sealed, the sandbox's state follows, and the event is written. */
async function commitCheckpoint<T>(
  ctx: Context,
  operation: Operation,
  plan: SealPlan<T>,
  { checkpointId, sealed, skipped }: SealedCapture,
  durationMs: number,
): Promise<T> {
  const lost: Loss[] = sealed.captured.parts.memory ? ['connections'] : ['processes', 'connections'];
  const eventData = {
    reason: plan.reason,
    location: sealed.location,
    bytes: sealed.bytes,
    parts: sealed.captured.parts,
    durationMs,
  };
  const [missingMemory] = skipped;
  const reason = missingMemory === undefined ? null : `its memory could not be kept: ${missingMemory.why}`;
  const skippedData = skipped.length === 0 ? {} : { skipped: [...skipped] };
  return fencedTransactionChecked(
    ctx,
    operation,
    async (tx, sandbox) => {
      const now = ctx.clock.now();
      await markSealed(
        tx,
        checkpointId,
        sealed,
        { recovered: false, kept: plan.kept, expiresAt: plan.expiresAt },
        now,
      );
      if (plan.name !== null) await nameCheckpoint(tx, sandbox.id, checkpointId, plan.name, now);
      const extraResult = await plan.extraWrites(tx, sandbox, operation);
      const { memory } = sealed.captured.parts;
      const continuesRunning = plan.afterwards === 'runs on';
      const checkpoint = { checkpointId, memory, continuesRunning };
      const jobEvents = await jobsAtSeal(ctx, tx, sandbox, checkpoint, operation.id);
      const fields = { operationId: operation.id, checkpointId, baseId: checkpointId, jobEvents };
      const data = { ...eventData, parentId: sandbox.baseId };
      if (continuesRunning) {
        const sealedData = { ...data, name: plan.name };
        await applyTransition(ctx, tx, sandbox, 'snapshotted', 'checkpoint.sealed', sealedData, fields);
        return extraResult;
      }
      // A sandbox that is started again at once keeps the end of its lifetime.
      const endsAt = plan.afterwards === 'restarts' ? sandbox.endsAt : null;
      const change = { endsAt, lost, reason, evidence: 'ledger', observedAt: now } as const;
      await deleteActivity(tx, sandbox.id);
      if (plan.afterwards === 'stays paused') {
        await endOperation(tx, operation, now, { outcome: 'succeeded', result: { checkpointId } });
      }
      await applyTransition(
        ctx,
        tx,
        sandbox,
        'sealed',
        'sandbox.paused',
        { ...data, lost, ...skippedData },
        { ...fields, change },
      );
      return extraResult;
    },
    async (tx) => (await findCheckpoint(tx, checkpointId))?.state === 'sealed',
  );
}

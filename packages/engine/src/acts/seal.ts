/**
 * Sealing a checkpoint of a running sandbox: the one act behind pause, snapshot, fork and rollback.
 *
 * Until the commit any failure leaves the sandbox running with everything it had except its outside
 * connections. After the commit of a pause the frozen instance may only be killed.
 */
import { type CheckpointId, type Loss, type Reason, type Skipped, TorporError } from '@torpor/protocol';
import {
  findCheckpoint,
  findWriting,
  insertWriting,
  markDeleted,
  markSealed,
  type Sealed,
} from '../checkpoints/checkpoint.ts';
import { type Context, note, runtimeOf, take } from '../context.ts';
import { forgetActivity } from '../idleness.ts';
import { jobsAtSeal } from '../jobs/follow.ts';
import { endOperation, FenceLost, type Operation, proveOurs, setPhase } from '../operations/operation.ts';
import {
  CommitUnknown,
  commit,
  commitForSure,
  type OperationHandle,
  passFaultPoint,
  recordPhase,
} from '../operations/operation-handle.ts';
import type { Staging } from '../ports/checkpoint-store.ts';
import type { Transaction } from '../ports/database.ts';
import type { FreezePurpose, Instance, Runtime } from '../ports/runtime.ts';
import type { Sandbox } from '../sandbox.ts';
import { within } from '../within.ts';
import { asMemoryFault, memoryFault } from './memory-fault.ts';
import { thaw } from './thaw.ts';
import { openTrafficGate } from './traffic-gate.ts';

export interface SealPlan {
  readonly checkpointId: CheckpointId;
  readonly mode: 'memory' | 'files';
  readonly reason: Reason;
  /** `pause` leaves it paused; `continue` lets the same processes go on; `start` pauses it for a start to follow. */
  readonly afterwards: 'pause' | 'continue' | 'start';
  /** Asked for as a checkpoint: it stays until somebody deletes it or it expires. */
  readonly kept: boolean;
  readonly name: string | null;
  readonly expiresAt: number | null;
  /** When the files are sealed alone because the memory cannot be captured; never, unless said. */
  readonly filesInstead?: FilesInstead;
  /** What else becomes true with the checkpoint, in the same transaction, before its event. */
  readonly also?: (tx: Transaction, sandbox: Sandbox, operation: Operation) => Promise<void>;
}

/** A capture that timed out may have met a busy machine; a failed one fails again. */
export type FilesInstead = 'never' | 'on failure' | 'on failure or timeout';

/** What was sealed, and the memory that is not part of it although it was wanted. */
interface Written {
  readonly checkpointId: CheckpointId;
  readonly sealed: Sealed;
  readonly skipped: readonly Skipped[];
}

/** The row of a checkpoint that is about to be written; part of the transaction that accepts the operation. */
export async function reserve(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  operation: Operation,
  checkpointId: CheckpointId,
): Promise<void> {
  await insertWriting(
    tx,
    {
      id: checkpointId,
      org: sandbox.org,
      sandboxId: sandbox.id,
      generation: sandbox.generation,
      seq: sandbox.seq,
      parentId: sandbox.baseId,
      runtime: sandbox.runtime,
      operationId: operation.id,
    },
    ctx.clock.now(),
  );
}

export async function seal(
  ctx: Context,
  handle: OperationHandle,
  sandbox: Sandbox,
  plan: SealPlan,
): Promise<void> {
  const { operation, signal } = handle;
  const runtime = runtimeOf(ctx, sandbox);
  const instance: Instance = { sandboxId: sandbox.id, generation: sandbox.generation };
  const began = ctx.clock.monotonic();
  try {
    await passFaultPoint(ctx, operation, 'seal-claimed');
    await quieten(ctx, handle, runtime, instance, plan.afterwards === 'continue' ? 'snapshot' : 'pause');
    const written = await writeAsAllowed(ctx, handle, runtime, instance, sandbox, plan);
    await passFaultPoint(ctx, operation, 'seal-sealed');
    signal.throwIfAborted();
    const durationMs = Math.round(ctx.clock.monotonic() - began);
    await commitSealed(ctx, operation, plan, written, durationMs);
  } catch (thrown) {
    if (!(thrown instanceof FenceLost || thrown instanceof CommitUnknown)) {
      await undoSeal(ctx, operation, sandbox, TorporError.from(thrown));
      throw new SealFailed();
    }
    // Somebody else settles it; our own door is of no use to them.
    await openTrafficGate(ctx, sandbox.id);
    throw thrown;
  }
  await passFaultPoint(ctx, operation, 'seal-committed');
  if (plan.afterwards === 'continue') await goOn(ctx, operation, sandbox, plan.checkpointId);
  // What is to run again at once keeps its door closed until it does.
  if (plan.afterwards !== 'start') await openTrafficGate(ctx, sandbox.id);
}

/** Lets a sandbox go on that was sealed in place; only then is the operation over and the next one let in. */
export async function goOn(
  ctx: Context,
  operation: Operation,
  sandbox: Sandbox,
  checkpointId: CheckpointId,
): Promise<void> {
  await thaw(ctx, { ...sandbox, checkpointId });
  ctx.jobWatch.begin(sandbox.id);
  await passFaultPoint(ctx, operation, 'seal-thawed');
  await commit(ctx, operation, (tx) =>
    endOperation(tx, operation, ctx.clock.now(), { outcome: 'succeeded', result: { checkpointId } }),
  );
}

/** The seal failed, the sandbox runs again and the operation has ended with the cause. */
export class SealFailed extends Error {
  override readonly name = 'SealFailed';
}

/** Holds new requests, lets those in flight finish within a bound, freezes, and resets what is still open. */
async function quieten(
  ctx: Context,
  handle: OperationHandle,
  runtime: Runtime,
  instance: Instance,
  purpose: FreezePurpose,
): Promise<void> {
  const { operation, signal } = handle;
  const { callMs, drainMs } = ctx.settings;
  const { sandboxId } = instance;
  const call = <T>(what: string, work: (own: AbortSignal) => Promise<T>) =>
    within(ctx.clock, callMs, what, work, signal);

  ctx.jobWatch.end(sandboxId);
  await call('Closing the door', () => ctx.gate.close(sandboxId));
  await passFaultPoint(ctx, operation, 'seal-closed');
  await within(ctx.clock, drainMs, 'Draining', (own) => ctx.gate.drain(sandboxId, own), signal).catch(
    (thrown) => {
      // Past the bound the rest is cut below; only losing the operation is a reason to stop here.
      signal.throwIfAborted();
      ctx.report('drain cut short', { sandboxId, error: thrown });
    },
  );
  await call('Writing dirty data back', (own) => runtime.presync(instance, own));
  await passFaultPoint(ctx, operation, 'seal-synced');
  // A freeze that comes after somebody else undid this operation would stop a sandbox nobody thaws.
  await proveOurs(ctx.db, operation);
  await call('Freezing', (own) => runtime.freeze(instance, own, purpose));
  await recordPhase(ctx, operation, 'frozen');
  await passFaultPoint(ctx, operation, 'seal-frozen');
  await call('Resetting connections', () => ctx.gate.cut(sandboxId));
  await passFaultPoint(ctx, operation, 'seal-cut');
}

/** Writes what the plan wants; without the memory, as a checkpoint of its own, where that is allowed. */
async function writeAsAllowed(
  ctx: Context,
  handle: OperationHandle,
  runtime: Runtime,
  instance: Instance,
  sandbox: Sandbox,
  plan: SealPlan,
): Promise<Written> {
  const { checkpointId, mode, filesInstead = 'never' } = plan;
  try {
    return { checkpointId, sealed: await write(ctx, handle, runtime, instance, sandbox, plan), skipped: [] };
  } catch (thrown) {
    const fault = mode === 'memory' && !handle.signal.aborted ? memoryFault(thrown) : undefined;
    if (fault === undefined) throw thrown;
    if (!allows(filesInstead, fault)) throw fault;
    const { code, message: why } = fault;
    const again = await reserveForFiles(ctx, handle.operation, why);
    const filesOnly = { checkpointId: again, mode: 'files' } as const;
    const sealed = await write(ctx, handle, runtime, instance, sandbox, filesOnly);
    return { checkpointId: again, sealed, skipped: [{ part: 'memory', code, why }] };
  }
}

function allows(filesInstead: FilesInstead, { code }: TorporError): boolean {
  return filesInstead === 'on failure or timeout' || (filesInstead === 'on failure' && code !== 'timeout');
}

/** What the unfinished checkpoint has staged is left to the collector: its parts are not those of the new one. */
async function reserveForFiles(ctx: Context, operation: Operation, why: string): Promise<CheckpointId> {
  const checkpointId = ctx.ids.next('ckpt');
  await commit(ctx, operation, async (tx, sandbox) => {
    for (const unfinished of await findWriting(tx, operation.id)) {
      await markDeleted(tx, unfinished.id, ctx.clock.now());
    }
    await reserve(ctx, tx, sandbox, operation, checkpointId);
    await setPhase(tx, operation, 'keeping files only');
    const data = { kind: operation.kind, phase: 'keeping files only', detail: why };
    await note(ctx, tx, sandbox, 'operation.phase', data, { operationId: operation.id });
  });
  return checkpointId;
}

/** Brings the frozen instance's bytes into the store, durably. */
async function write(
  ctx: Context,
  handle: OperationHandle,
  runtime: Runtime,
  instance: Instance,
  sandbox: Sandbox,
  { checkpointId, mode }: Pick<SealPlan, 'checkpointId' | 'mode'>,
): Promise<Sealed> {
  const { callMs, captureMs } = ctx.settings;
  const call = <T>(ms: number, what: string, work: (own: AbortSignal) => Promise<T>) =>
    within(ctx.clock, ms, what, work, handle.signal);
  const staging = await call(callMs, 'Staging the checkpoint', (own) => ctx.store.stage(checkpointId, own));
  const captured = await call(mode === 'memory' ? captureMs : callMs, 'Capturing', (own) =>
    runtime.capture(instance, mode, staging, own),
  ).catch((thrown: unknown) => {
    throw mode === 'memory' && !handle.signal.aborted ? asMemoryFault(TorporError.from(thrown)) : thrown;
  });
  await recordPhase(ctx, handle.operation, 'captured');
  await passFaultPoint(ctx, handle.operation, 'seal-captured');
  return sealCaptured(ctx, staging, captured, sandbox, handle.signal);
}

/** Makes captured bytes durable and checks that they are what was meant: an empty checkpoint is a failure (R94). */
export async function sealCaptured(
  ctx: Context,
  staging: Staging,
  captured: Sealed['captured'],
  origin: { readonly id: Sandbox['id'] | null; readonly baseId: Sandbox['baseId']; readonly runtime: string },
  signal: AbortSignal,
): Promise<Sealed> {
  if (!captured.parts.files) throw nothingCaptured(staging);
  if (captured.external !== null) {
    return { captured, location: captured.external.location, bytes: captured.external.bytes ?? 0 };
  }
  const { checkpointId } = staging;
  const { parts, needs } = captured;
  const { bytes } = await within(
    ctx.clock,
    ctx.settings.callMs,
    'Sealing the checkpoint',
    async (own) => {
      const createdAt = ctx.clock.now();
      const about = { sandboxId: origin.id, parentId: origin.baseId, runtime: origin.runtime, createdAt };
      const sealed = await ctx.store.seal(staging, { checkpointId, ...about, parts, needs }, own);
      // Whatever the runtime says of it: what has no content is nothing to start from.
      if (sealed.manifest.entries.length === 0) throw nothingCaptured(staging);
      // The runtime is let go only for a checkpoint that it would start from itself.
      const verdict = await runtimeOf(ctx, origin).inspect(
        { id: checkpointId, parts, needs, path: ctx.store.path(checkpointId) },
        own,
      );
      if (!parts.memory || verdict.usable) return sealed;
      throw asMemoryFault(
        new TorporError('checkpoint_incompatible', `The memory just captured: ${verdict.why}.`, {
          checkpointId,
        }),
      );
    },
    signal,
  );
  return { captured, location: ctx.store.location(checkpointId), bytes };
}

function nothingCaptured({ checkpointId }: Staging): TorporError {
  const message = 'The runtime captured no files; such a checkpoint is not sealed.';
  return new TorporError('checkpoint_corrupt', message, { checkpointId });
}

/** One transaction: the checkpoint is sealed, the sandbox says so, the event tells it. */
async function commitSealed(
  ctx: Context,
  operation: Operation,
  plan: SealPlan,
  { checkpointId, sealed, skipped }: Written,
  durationMs: number,
): Promise<void> {
  const lost: Loss[] = sealed.captured.parts.memory ? ['connections'] : ['processes', 'connections'];
  const about = {
    reason: plan.reason,
    location: sealed.location,
    bytes: sealed.bytes,
    parts: sealed.captured.parts,
    durationMs,
  };
  const [unkept] = skipped;
  const reason = unkept === undefined ? null : `its memory could not be kept: ${unkept.why}`;
  const told = skipped.length === 0 ? {} : { skipped: [...skipped] };
  await commitForSure(
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
      await plan.also?.(tx, sandbox, operation);
      const { memory } = sealed.captured.parts;
      const goesOn = plan.afterwards === 'continue';
      const also = await jobsAtSeal(ctx, tx, sandbox, { checkpointId, memory, goesOn }, operation.id);
      const head = { operationId: operation.id, checkpointId, baseId: checkpointId, also };
      const data = { ...about, parentId: sandbox.baseId };
      if (goesOn) {
        const sealedData = { ...data, name: plan.name };
        await take(ctx, tx, sandbox, 'snapshotted', 'checkpoint.sealed', sealedData, head);
        return;
      }
      // A life that goes on at once ends when it was to end anyway.
      const endsAt = plan.afterwards === 'start' ? sandbox.endsAt : null;
      const change = { endsAt, lost, reason, evidence: 'ledger', observedAt: now } as const;
      await forgetActivity(tx, sandbox.id);
      if (plan.afterwards === 'pause') {
        await endOperation(tx, operation, now, { outcome: 'succeeded', result: { checkpointId } });
      }
      await take(
        ctx,
        tx,
        sandbox,
        'sealed',
        'sandbox.paused',
        { ...data, lost, ...told },
        { ...head, change },
      );
    },
    async (tx) => (await findCheckpoint(tx, checkpointId))?.state === 'sealed',
  );
}

/**
 * Thaws, opens the door and ends the operation with the cause; also for a seal whose server died before
 * the commit. Nothing has changed but the outside connections.
 */
export async function undoSeal(
  ctx: Context,
  operation: Operation,
  sandbox: Sandbox,
  error: TorporError,
): Promise<void> {
  // A thaw that comes too late would let processes run in the middle of somebody else's seal.
  await proveOurs(ctx.db, operation);
  const thawed = await thaw(ctx, sandbox);
  ctx.jobWatch.begin(sandbox.id);
  await openTrafficGate(ctx, sandbox.id);
  await commit(ctx, operation, async (tx, locked) => {
    const now = ctx.clock.now();
    for (const unfinished of await findWriting(tx, operation.id)) await markDeleted(tx, unfinished.id, now);
    await endOperation(tx, operation, now, { outcome: 'failed', error });
    const evidence = thawed ? 'running' : 'unknown';
    const extras = { operationId: operation.id, change: { evidence, observedAt: now } } as const;
    if (locked.state === 'pausing') {
      const { code, message } = error;
      await take(
        ctx,
        tx,
        locked,
        'seal_failed',
        'sandbox.pause_failed',
        { error: { code, message } },
        extras,
      );
    } else {
      const data = { kind: operation.kind, phase: 'rolled back', detail: error.message };
      await note(ctx, tx, locked, 'operation.phase', data, extras);
    }
  });
}

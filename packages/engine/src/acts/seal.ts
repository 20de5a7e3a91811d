/**
 * Seals a checkpoint of a running sandbox: the act behind pause, snapshot, fork and rollback.
 *
 * Any failure before the commit leaves the sandbox running with everything it had except its connections to
 * the outside. After the commit of a pause the frozen instance may only be destroyed.
 */
import { type CheckpointId, type Loss, type Reason, type Skipped, TorporError } from '@torpor/protocol';
import {
  findCheckpoint,
  findWriting,
  insertWriting,
  markDeleted,
  markSealed,
  nameCheckpoint,
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

export interface SealPlan<T = void> {
  readonly checkpointId: CheckpointId;
  readonly mode: 'memory' | 'files';
  readonly reason: Reason;
  /**
   * What happens to the sandbox after the commit. `pause`: it stays paused. `continue`: the same processes go on.
   * `start`: it is paused, and a start follows within the same operation.
   */
  readonly afterwards: 'pause' | 'continue' | 'start';
  /** A caller asked for this checkpoint: it stays until a caller deletes it or it expires. */
  readonly kept: boolean;
  readonly name: string | null;
  readonly expiresAt: number | null;
  /** When the files are sealed alone because the memory cannot be captured. */
  readonly filesInstead: FilesInstead;
  /** Writes what becomes true together with the checkpoint, in the same transaction, before its event. */
  readonly also: (tx: Transaction, sandbox: Sandbox, operation: Operation) => Promise<T>;
}

/** For plans without other writes. */
export async function nothingElse(): Promise<void> {}

/** A capture that timed out may have met a busy machine; a capture that failed fails again. */
export type FilesInstead = 'never' | 'on failure' | 'on failure or timeout';

/** `failed`: the sandbox runs again and the operation has ended with the cause. */
export type SealOutcome<T> = { readonly is: 'sealed'; readonly also: T } | { readonly is: 'failed' };

/** A sealed checkpoint, and the memory that it lacks although the plan wanted it. */
interface Written {
  readonly checkpointId: CheckpointId;
  readonly sealed: Sealed;
  readonly skipped: readonly Skipped[];
}

/** Writes the row of a checkpoint before any of its bytes exist; part of the transaction that accepts the operation. */
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

/** Freezes the sandbox, writes its checkpoint and commits it; `goOnAfterSeal` follows. */
export async function seal<T>(
  ctx: Context,
  handle: OperationHandle,
  sandbox: Sandbox,
  plan: SealPlan<T>,
): Promise<SealOutcome<T>> {
  const { operation, signal } = handle;
  const runtime = runtimeOf(ctx, sandbox);
  const instance: Instance = { sandboxId: sandbox.id, generation: sandbox.generation };
  const began = ctx.clock.monotonic();
  try {
    await passFaultPoint(ctx, operation, 'seal-claimed');
    await freeze(ctx, handle, runtime, instance, plan.afterwards === 'continue' ? 'snapshot' : 'pause');
    const written = await writeAsAllowed(ctx, handle, runtime, instance, sandbox, plan);
    await passFaultPoint(ctx, operation, 'seal-sealed');
    signal.throwIfAborted();
    const durationMs = Math.round(ctx.clock.monotonic() - began);
    return { is: 'sealed', also: await commitSealed(ctx, operation, plan, written, durationMs) };
  } catch (thrown) {
    if (thrown instanceof FenceLost || thrown instanceof CommitUnknown) {
      // Another driver settles the operation. It cannot open the gate of this server.
      await openTrafficGate(ctx, sandbox.id);
      throw thrown;
    }
    await undoSeal(ctx, operation, sandbox, TorporError.from(thrown));
    return { is: 'failed' };
  }
}

/** Thaws a sandbox that was sealed in place. Only then does the operation end and admit the next one. */
export async function continueAfterSeal(
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
  await openTrafficGate(ctx, sandbox.id);
}

/** Holds new requests, lets active ones finish within a bound, freezes, and resets the connections that are left. */
async function freeze(
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
  await call('Closing the traffic gate', () => ctx.gate.close(sandboxId));
  await passFaultPoint(ctx, operation, 'seal-closed');
  await within(ctx.clock, drainMs, 'Draining', (own) => ctx.gate.drain(sandboxId, own), signal).catch(
    (thrown) => {
      // Past the bound the remaining connections are cut below; only the loss of the operation stops the seal.
      signal.throwIfAborted();
      ctx.report('drain cut short', { sandboxId, error: thrown });
    },
  );
  await call('Writing dirty data back', (own) => runtime.presync(instance, own));
  await passFaultPoint(ctx, operation, 'seal-synced');
  // A freeze after another server undid this operation would stop a sandbox that nothing thaws.
  await proveOurs(ctx.db, operation);
  await call('Freezing', (own) => runtime.freeze(instance, own, purpose));
  await recordPhase(ctx, operation, 'frozen');
  await passFaultPoint(ctx, operation, 'seal-frozen');
  await call('Resetting connections', () => ctx.gate.cut(sandboxId));
  await passFaultPoint(ctx, operation, 'seal-cut');
}

/** Writes what the plan wants. Where the plan allows it, files without memory become a checkpoint of their own. */
async function writeAsAllowed(
  ctx: Context,
  handle: OperationHandle,
  runtime: Runtime,
  instance: Instance,
  sandbox: Sandbox,
  plan: Pick<SealPlan, 'checkpointId' | 'mode' | 'filesInstead'>,
): Promise<Written> {
  const { checkpointId, mode, filesInstead } = plan;
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

/** The collector removes what the unfinished checkpoint has staged: its parts differ from those of the new one. */
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

/** Makes captured bytes durable and checks them: an empty checkpoint is a failure (R94). */
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
      // Whatever the runtime says: a checkpoint without content cannot be started.
      if (sealed.manifest.entries.length === 0) throw nothingCaptured(staging);
      // The frozen instance is given up only for a checkpoint that its runtime would start from.
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

/** One transaction: the checkpoint is sealed, the sandbox's state follows, and the event is written. */
async function commitSealed<T>(
  ctx: Context,
  operation: Operation,
  plan: SealPlan<T>,
  { checkpointId, sealed, skipped }: Written,
  durationMs: number,
): Promise<T> {
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
  return commitForSure(
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
      const written = await plan.also(tx, sandbox, operation);
      const { memory } = sealed.captured.parts;
      const goesOn = plan.afterwards === 'continue';
      const also = await jobsAtSeal(ctx, tx, sandbox, { checkpointId, memory, goesOn }, operation.id);
      const head = { operationId: operation.id, checkpointId, baseId: checkpointId, also };
      const data = { ...about, parentId: sandbox.baseId };
      if (goesOn) {
        const sealedData = { ...data, name: plan.name };
        await take(ctx, tx, sandbox, 'snapshotted', 'checkpoint.sealed', sealedData, head);
        return written;
      }
      // A sandbox that is started again at once keeps the end of its lifetime.
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
      return written;
    },
    async (tx) => (await findCheckpoint(tx, checkpointId))?.state === 'sealed',
  );
}

/**
 * Thaws, opens the traffic gate and ends the operation with the cause; also for a seal whose server died before
 * the commit. Nothing has changed but the connections to the outside.
 */
export async function undoSeal(
  ctx: Context,
  operation: Operation,
  sandbox: Sandbox,
  error: TorporError,
): Promise<void> {
  // A late thaw would let processes run in the middle of a later seal.
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

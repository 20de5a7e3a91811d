/**
 * Starts a sandbox from a checkpoint: the act behind create, resume, fork and rollback.
 *
 * It tries the sources that the policy allows, best first, each under a generation of its own. Only a fault of the
 * checkpoint itself leads to the next source; any other failure ends the start at once.
 */
import { type CheckpointId, type Reason, type Skipped, TorporError } from '@torpor/protocol';
import { toSealedCheckpoint } from '../checkpoints/checkpoint.ts';
import { checkBeforeStart, recordStartFault } from '../checkpoints/checks.ts';
import { provesDamage } from '../checkpoints/health-record.ts';
import { isFaultOfFiles } from '../checkpoints/part-fault.ts';
import { concludeFromTimeouts, recordRestored, recordStartTimeout } from '../checkpoints/start-timeouts.ts';
import { type Context, runtimeOf } from '../context.ts';
import { applyTransition, recordEvent } from '../ledger/transition.ts';
import { FenceLost, type Operation, requestedCheckpoint, setPhase } from '../operations/operation.ts';
import {
  CommitUnknown,
  fencedTransaction,
  leavesOperationOpen,
  type OperationHandle,
  passFaultPoint,
} from '../operations/operation-handle.ts';
import type { Transaction } from '../ports/database.ts';
import type { Instance, Started } from '../ports/runtime.ts';
import type { Sandbox } from '../sandbox.ts';
import { withTimeout } from '../with-timeout.ts';
import { observe } from './observe.ts';
import { isSourceFault, nothingToStartFrom, type StartSource, sourcesOf } from './sources.ts';
import { commitStarted, endFailedStart } from './start-commits.ts';
import { openTrafficGate } from './traffic-gate.ts';

/** Part of the accepting transaction: the state `resuming`, under a new generation. */
export async function beginResume(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  operation: Operation,
  reason: Reason,
): Promise<Sandbox> {
  return applyTransition(
    ctx,
    tx,
    sandbox,
    'resume',
    'sandbox.resuming',
    { reason },
    {
      operationId: operation.id,
      generation: sandbox.generation + 1,
      baseId: requestedCheckpoint(operation) ?? sandbox.checkpointId,
    },
  );
}

/** Drives a sandbox that is `creating` or `resuming` to `running`, or back, and ends the operation. */
export async function start(ctx: Context, handle: OperationHandle, accepted: Sandbox): Promise<void> {
  const { operation, trace } = handle;
  let sandbox = accepted;
  let firstFault: TorporError | undefined;
  const skipped: Skipped[] = [];
  let started = false;
  try {
    await passFaultPoint(ctx, operation, 'start-accepted');
    trace.enter('clear');
    // The runtime may have kept the last instance as a cache of the checkpoint that this start begins with.
    await destroyUpTo(ctx, handle, sandbox, sandbox.generation - 1, sandbox.baseId);
    await passFaultPoint(ctx, operation, 'start-cleared');
    // A checkpoint whose files are at fault cannot be started, not even from its memory.
    const withoutFiles = new Set<CheckpointId>();
    for (const source of await sourcesOf(ctx, sandbox, operation)) {
      if (withoutFiles.has(source.checkpoint.id)) continue;
      sandbox = await recordSource(ctx, operation, sandbox, source, firstFault);
      try {
        await ctx.cache.hold(source.checkpoint.id, () => startFrom(ctx, handle, sandbox, source, skipped));
        await recordUse(ctx, source);
        started = true;
        break;
      } catch (thrown) {
        if (leavesOperationOpen(thrown)) throw thrown;
        trace.fail(thrown);
        trace.enter('clear');
        await destroyFailedStart(ctx, handle, sandbox);
        if (!isSourceFault(thrown)) throw thrown;
        if (isFaultOfFiles(thrown)) withoutFiles.add(source.checkpoint.id);
        firstFault ??= thrown;
        skipped.push(skippedBy(thrown, source));
      }
    }
    if (!started) throw firstFault ?? nothingToStartFrom(sandbox);
  } catch (thrown) {
    if (leavesOperationOpen(thrown)) {
      await openTrafficGate(ctx, sandbox.id);
      throw thrown;
    }
    trace.fail(thrown);
    await endFailedStart(ctx, operation, sandbox, TorporError.from(thrown));
  }
  if (started) await passFaultPoint(ctx, operation, 'start-committed');
  trace.enter('open');
  await openTrafficGate(ctx, sandbox.id);
}

/** For the order in which checkpoints are evicted. The sandbox runs, even when this fails. */
async function recordUse({ replicator, store, clock, report }: Context, { checkpoint }: StartSource) {
  if (replicator === undefined || checkpoint.external) return;
  await store
    .recordUse(checkpoint.id, clock.now())
    .catch((error: unknown) =>
      report('the use of a checkpoint was not recorded', { checkpointId: checkpoint.id, error }),
    );
}

function skippedBy(fault: TorporError, { checkpoint, mode }: StartSource): Skipped {
  const part = isFaultOfFiles(fault) ? 'files' : mode;
  return { checkpointId: checkpoint.id, part, code: fault.code, why: fault.message };
}

/**
 * For a start whose server died and whose checkpoint may be used up. If the instance is running, it is committed as the
 * sandbox. If the runtime cannot be asked, the operation stays open, because a wrong guess would lose the sandbox.
 */
export async function acceptUnobservedStart(
  ctx: Context,
  handle: OperationHandle,
  sandbox: Sandbox,
): Promise<void> {
  const found = await observe(ctx, sandbox);
  if (found.is === 'unknown') throw new Error(`The start of ${sandbox.id} cannot be judged: ${found.why}`);
  if (found.is === 'gone') {
    // A generation is started only once, so the next try gets a new one.
    const again = await fencedTransaction(ctx, handle.operation, (tx, locked) => {
      const data = { kind: handle.operation.kind, phase: 'starting again', detail: found.why };
      const fields = { operationId: handle.operation.id, generation: locked.generation + 1 };
      return recordEvent(ctx, tx, locked, 'operation.phase', data, fields);
    });
    return start(ctx, handle, again);
  }
  const [source] = await sourcesOf(ctx, sandbox, handle.operation);
  if (source === undefined) throw nothingToStartFrom(sandbox);
  await commitStarted(ctx, handle.operation, {
    source,
    started: assumedResult(source),
    skipped: [],
    durationMs: 0,
  });
  await openTrafficGate(ctx, sandbox.id);
}

/**
 * Waits until no instance up to this generation is left: each one is dead and its mounts are gone. The runtime may keep
 * one of them as a cache of the checkpoint `keep`.
 */
async function destroyUpTo(
  ctx: Context,
  handle: OperationHandle,
  sandbox: Sandbox,
  generation: number,
  keep: CheckpointId | null,
): Promise<void> {
  if (generation < 1) return;
  const upTo: Instance = { sandboxId: sandbox.id, generation };
  await withTimeout(
    ctx.clock,
    ctx.settings.callMs,
    'Destroying the earlier instances',
    (callSignal) => runtimeOf(ctx, sandbox).destroy(upTo, callSignal, keep ?? undefined),
    handle.signal,
  );
}

/** Runs even past the operation's deadline. The reconciler finds what this leaves behind. */
async function destroyFailedStart(ctx: Context, failed: OperationHandle, sandbox: Sandbox): Promise<void> {
  const handle = { ...failed, signal: new AbortController().signal };
  await destroyUpTo(ctx, handle, sandbox, sandbox.generation, null).catch((error: unknown) =>
    ctx.report('the instance of a failed start could not be destroyed', { sandboxId: sandbox.id, error }),
  );
}

/**
 * Records the source as the base of the next run, so that the collector keeps it. After a fault of another source the
 * start gets a new generation. Writes nothing when the base is the same already.
 */
async function recordSource(
  ctx: Context,
  operation: Operation,
  sandbox: Sandbox,
  source: StartSource,
  fault: TorporError | undefined,
): Promise<Sandbox> {
  const baseId = source.checkpoint.id;
  if (fault === undefined && sandbox.baseId === baseId) return sandbox;
  const generation = fault === undefined ? sandbox.generation : sandbox.generation + 1;
  const name = fault === undefined ? 'source chosen' : 'falling back';
  const detail = `${source.kind} of ${baseId}${fault === undefined ? '' : `, because ${fault.message}`}`;
  return fencedTransaction(ctx, operation, async (tx, locked) => {
    await setPhase(tx, operation, name);
    const data = { kind: operation.kind, phase: name, detail };
    return recordEvent(ctx, tx, locked, 'operation.phase', data, {
      operationId: operation.id,
      generation,
      baseId,
    });
  });
}

async function startFrom(
  ctx: Context,
  handle: OperationHandle,
  sandbox: Sandbox,
  source: StartSource,
  skipped: readonly Skipped[],
): Promise<void> {
  const { checkpoint, mode } = source;
  handle.trace.enter('inspect');
  const isInspected = !isWarm(ctx, sandbox, source);
  if (isInspected) {
    await checkBeforeStart(ctx, checkpoint, mode, handle.signal);
    // When the policy does not allow the files, the memory is tried even after timeouts.
    const concluded = source.hasFilesNext ? await concludeFromTimeouts(ctx, checkpoint) : undefined;
    if (concluded !== undefined) throw concluded;
  }
  await passFaultPoint(ctx, handle.operation, 'start-inspected');
  try {
    await launch(ctx, handle, sandbox, source, skipped);
  } catch (thrown) {
    if (leavesOperationOpen(thrown)) throw thrown;
    if (isRestoreTimeout(thrown, source) && !handle.signal.aborted) {
      const known = await recordStartTimeout(ctx, checkpoint, thrown);
      throw (
        (source.hasFilesNext ? await concludeFromTimeouts(ctx, known) : undefined) ??
        thrown.with(RESTORE_HINT)
      );
    }
    if (provesDamage(thrown)) {
      // The adoption failed, and the runtime read the checkpoint: the inspection says which part is damaged.
      if (!isInspected) await checkBeforeStart(ctx, checkpoint, mode, handle.signal);
      await recordStartFault(ctx, checkpoint, mode, thrown);
      throw thrown.with({ checkpointId: checkpoint.id, details: { location: checkpoint.location } });
    }
    if (checkpoint.replayable || isSourceFault(thrown)) throw thrown;
    await resolveFailedStart(ctx, handle, sandbox, source, skipped, thrown);
  }
}

/**
 * Whether the runtime expects to adopt an instance. Such a start reads nothing of the checkpoint, and succeeds even if the
 * checkpoint is damaged. When the adoption fails, the same start restores from the checkpoint.
 */
function isWarm(ctx: Context, sandbox: Sandbox, { checkpoint, mode }: StartSource): boolean {
  return mode === 'memory' && runtimeOf(ctx, sandbox).warmth?.(sandbox.id, checkpoint.id).warm === true;
}

const RESTORE_HINT = {
  hint: 'The sandbox stays paused. Try again, or resume with mode "files" to start from its files.',
};

/** Not for a provider's checkpoint: its start may have succeeded after the timeout, which `resolveFailedStart` observes. */
function isRestoreTimeout(thrown: unknown, { checkpoint, mode }: StartSource): thrown is TorporError {
  const isTimeout = thrown instanceof TorporError && thrown.code === 'timeout';
  return isTimeout && mode === 'memory' && checkpoint.parts.memory && !checkpoint.external;
}

/**
 * A failed start may have used up its checkpoint, and the instance that it started may be the only copy. So the instance
 * is observed. If it is running, it is committed as the sandbox. If the checkpoint is proved untouched, the start fails
 * and may be tried again. In any other case the operation stays open and nothing is destroyed.
 */
async function resolveFailedStart(
  ctx: Context,
  handle: OperationHandle,
  sandbox: Sandbox,
  source: StartSource,
  skipped: readonly Skipped[],
  thrown: unknown,
): Promise<void> {
  const found = await observe(ctx, sandbox);
  if (found.is === 'gone' && found.untouched === true) throw thrown;
  const undecided = (cause: unknown) =>
    new CommitUnknown(`The start may have used checkpoint ${source.checkpoint.id} up.`, { cause });
  if (found.is !== 'running') throw undecided(thrown);
  const start = { source, started: assumedResult(source), skipped, durationMs: 0 };
  await commitStarted(ctx, handle.operation, start).catch((cause: unknown) => {
    throw cause instanceof FenceLost ? cause : undecided(cause);
  });
}

/** What is assumed about a start whose end was not observed. */
function assumedResult({ mode }: StartSource): Started {
  return mode === 'memory' ? { mode: 'memory', lost: [] } : { mode: 'files', lost: ['processes'] };
}

async function launch(
  ctx: Context,
  handle: OperationHandle,
  sandbox: Sandbox,
  source: StartSource,
  skipped: readonly Skipped[],
): Promise<void> {
  const { operation, signal, trace } = handle;
  const runtime = runtimeOf(ctx, sandbox);
  const instance: Instance = { sandboxId: sandbox.id, generation: sandbox.generation };
  const began = ctx.clock.monotonic();
  const call = <T>(what: string, work: (callSignal: AbortSignal) => Promise<T>) =>
    withTimeout(ctx.clock, ctx.settings.callMs, what, work, signal);
  const from = toSealedCheckpoint(ctx.store, source.checkpoint);
  const { env, user, workdir, services: declared, network, resources } = sandbox.config;
  const services = declared.map(({ jobId: _, ...service }) => service);
  const fromTemplate = operation.kind === 'create' && requestedCheckpoint(operation) === undefined;
  const spec = { org: sandbox.org, env, user, workdir, services, network, resources, fromTemplate };

  trace.enter('start');
  const started = await call('Starting', (callSignal) =>
    runtime.start(instance, from, source.mode, spec, callSignal),
  );
  await passFaultPoint(ctx, operation, 'start-started');
  trace.enter('observe');
  // A runtime that answers "started" and did nothing is found out here and not by the user (R70).
  const observed = await call('Observing', (callSignal) => runtime.observe(instance, callSignal));
  if (observed.is !== 'running') {
    const why = 'why' in observed ? `: ${observed.why}` : '';
    throw new TorporError('unreachable', `The sandbox was started but is seen ${observed.is}${why}.`, {
      sandboxId: sandbox.id,
      // Tells a start that did nothing from a runtime that could not be asked.
      details: { seen: observed.is },
    });
  }
  await passFaultPoint(ctx, operation, 'start-observed');
  signal.throwIfAborted();
  const durationMs = Math.round(ctx.clock.monotonic() - began);
  trace.enter('commit');
  await commitStarted(ctx, operation, { source, started, skipped, durationMs });
  const isRestored = source.mode === 'memory' && started.mode === 'memory' && started.adopted !== true;
  if (isRestored) await clearTimeouts(ctx, source);
}

/** Clears the recorded timeouts of earlier starts. The sandbox runs, even when this fails. */
async function clearTimeouts(ctx: Context, { checkpoint }: StartSource): Promise<void> {
  await recordRestored(ctx, checkpoint).catch((error: unknown) =>
    ctx.report('the recorded timeouts of a checkpoint could not be cleared', {
      checkpointId: checkpoint.id,
      error,
    }),
  );
}

/**
 * Starting a sandbox from a checkpoint: the one act behind create, resume, fork and rollback.
 *
 * It tries the sources its policy allows, best first, each under a generation of its own. A failure that
 * may pass stops it at once; only a checkpoint that is itself at fault leads to the next source.
 */
import {
  type CheckpointId,
  type ErrorCode,
  type Loss,
  lostDetails,
  type Skipped,
  type SourceKind,
  TorporError,
} from '@torpor/protocol';
import { forRuntime, markDeleted } from '../checkpoints/checkpoint.ts';
import { provesDamage } from '../checkpoints/health.ts';
import { recordStartFault, requireUsable } from '../checkpoints/soundness.ts';
import { concludeFromTimeouts, recordRestored, recordStartTimeout } from '../checkpoints/start-timeouts.ts';
import { type Context, note, runtimeOf, take } from '../context.ts';
import { touch } from '../idleness.ts';
import { jobsAtEnd, jobsAtStart } from '../jobs/follow.ts';
import { endOperation, FenceLost, findOperation, type Operation, setPhase } from '../operations/operation.ts';
import {
  CommitUnknown,
  commit,
  commitForSure,
  type OperationHandle,
  passFaultPoint,
} from '../operations/operation-handle.ts';
import type { Transaction } from '../ports/database.ts';
import type { Instance, Started } from '../ports/runtime.ts';
import type { Sandbox } from '../sandbox.ts';
import { within } from '../within.ts';
import { checkpointIn, lossBy, proofOfLoss } from './loss.ts';
import { observe } from './observe.ts';
import { nothingToStartFrom, type Source, sourcesOf } from './sources.ts';
import { openTrafficGate } from './traffic-gate.ts';

/** Faults of one source, for which the next may be tried. */
const SOURCE_FAULTS: ReadonlySet<ErrorCode> = new Set([
  'checkpoint_missing',
  'checkpoint_corrupt',
  'checkpoint_incompatible',
]);

function isSourceFault(thrown: unknown): thrown is TorporError {
  return thrown instanceof TorporError && SOURCE_FAULTS.has(thrown.code);
}

/** Drives a sandbox that is `creating` or `resuming` to `running`, or back, and ends the operation. */
export async function start(ctx: Context, handle: OperationHandle, claimed: Sandbox): Promise<void> {
  const { operation } = handle;
  let sandbox = claimed;
  let firstFault: TorporError | undefined;
  const skipped: Skipped[] = [];
  let started = false;
  try {
    await passFaultPoint(ctx, operation, 'start-claimed');
    await clear(ctx, handle, sandbox, sandbox.generation - 1);
    await passFaultPoint(ctx, operation, 'start-cleared');
    // Nothing can be started from a checkpoint whose files are at fault, not even its memory.
    const withoutFiles = new Set<CheckpointId>();
    for (const source of await sourcesOf(ctx, sandbox, operation)) {
      if (withoutFiles.has(source.checkpoint.id)) continue;
      sandbox = await aim(ctx, operation, sandbox, source, firstFault);
      try {
        await startFrom(ctx, handle, sandbox, source, skipped);
        started = true;
        break;
      } catch (thrown) {
        if (thrown instanceof FenceLost || thrown instanceof CommitUnknown) throw thrown;
        await clearAnyway(ctx, operation, sandbox);
        if (!isSourceFault(thrown)) throw thrown;
        if (thrown.toBody().details?.['part'] === 'files') withoutFiles.add(source.checkpoint.id);
        firstFault ??= thrown;
        skipped.push(skippedBy(thrown, source));
      }
    }
    if (!started) throw firstFault ?? nothingToStartFrom(sandbox);
  } catch (thrown) {
    if (thrown instanceof FenceLost || thrown instanceof CommitUnknown) {
      await openTrafficGate(ctx, sandbox.id);
      throw thrown;
    }
    await giveUp(ctx, operation, sandbox, TorporError.from(thrown));
  }
  if (started) await passFaultPoint(ctx, operation, 'start-committed');
  await openTrafficGate(ctx, sandbox.id);
}

function skippedBy(fault: TorporError, { checkpoint, use }: Source): Skipped {
  const part = fault.toBody().details?.['part'] === 'files' ? 'files' : use;
  return { checkpointId: checkpoint.id, part, code: fault.code, why: fault.message };
}

/**
 * For a start whose server died and whose checkpoint may be used up: if the instance runs, it is the
 * sandbox. When it cannot be asked the operation stays open, because a wrong guess would lose it.
 */
export async function adopt(ctx: Context, handle: OperationHandle, sandbox: Sandbox): Promise<void> {
  const found = await observe(ctx, sandbox);
  if (found.is === 'unknown') throw new Error(`The start of ${sandbox.id} cannot be judged: ${found.why}`);
  if (found.is === 'gone') {
    // A generation is started once; the next try is a new one.
    const again = await commit(ctx, handle.operation, (tx, locked) => {
      const data = { kind: handle.operation.kind, phase: 'starting again', detail: found.why };
      const head = { operationId: handle.operation.id, generation: locked.generation + 1 };
      return note(ctx, tx, locked, 'operation.phase', data, head);
    });
    return start(ctx, handle, again);
  }
  const [source] = await sourcesOf(ctx, sandbox, handle.operation);
  if (source === undefined) throw nothingToStartFrom(sandbox);
  await commitStarted(ctx, handle.operation, {
    source,
    started: adopted(source),
    skipped: [],
    durationMs: 0,
  });
  await openTrafficGate(ctx, sandbox.id);
}

/** Waits until whatever ran before is dead and its mounts are gone. */
async function clear(
  ctx: Context,
  handle: OperationHandle,
  sandbox: Sandbox,
  generation: number,
): Promise<void> {
  if (generation < 1) return;
  const upTo: Instance = { sandboxId: sandbox.id, generation };
  await within(
    ctx.clock,
    ctx.settings.callMs,
    'Clearing the last run',
    (own) => runtimeOf(ctx, sandbox).destroy(upTo, own),
    handle.signal,
  );
}

/** After a failed start, also when the operation's own time is over. What it leaves, the reconciler finds. */
async function clearAnyway(ctx: Context, operation: Operation, sandbox: Sandbox): Promise<void> {
  const handle = { operation, signal: new AbortController().signal };
  await clear(ctx, handle, sandbox, sandbox.generation).catch((error: unknown) =>
    ctx.report('clearing a failed start failed', { sandboxId: sandbox.id, error }),
  );
}

/** Makes a source the base of the coming run, so that nobody collects it, under a generation of its own. */
async function aim(
  ctx: Context,
  operation: Operation,
  sandbox: Sandbox,
  source: Source,
  fault: TorporError | undefined,
): Promise<Sandbox> {
  const baseId = source.checkpoint.id;
  if (fault === undefined && sandbox.baseId === baseId) return sandbox;
  const generation = fault === undefined ? sandbox.generation : sandbox.generation + 1;
  const name = fault === undefined ? 'source chosen' : 'falling back';
  const detail = `${source.kind} of ${baseId}${fault === undefined ? '' : `, because ${fault.message}`}`;
  return commit(ctx, operation, async (tx, locked) => {
    await setPhase(tx, operation, name);
    const data = { kind: operation.kind, phase: name, detail };
    return note(ctx, tx, locked, 'operation.phase', data, { operationId: operation.id, generation, baseId });
  });
}

async function startFrom(
  ctx: Context,
  handle: OperationHandle,
  sandbox: Sandbox,
  source: Source,
  skipped: readonly Skipped[],
): Promise<void> {
  const { checkpoint, use } = source;
  await requireUsable(ctx, checkpoint, use, handle.signal);
  // Where nothing but the memory is allowed, it is tried whatever was concluded.
  const concluded = source.hasFilesNext ? await concludeFromTimeouts(ctx, checkpoint) : undefined;
  if (concluded !== undefined) throw concluded;
  await passFaultPoint(ctx, handle.operation, 'start-inspected');
  try {
    await launch(ctx, handle, sandbox, source, skipped);
  } catch (thrown) {
    if (thrown instanceof FenceLost || thrown instanceof CommitUnknown) throw thrown;
    if (isRestoreTimeout(thrown, source) && !handle.signal.aborted) {
      const known = await recordStartTimeout(ctx, checkpoint, thrown);
      throw (
        (source.hasFilesNext ? await concludeFromTimeouts(ctx, known) : undefined) ??
        thrown.with(RESTORE_HINT)
      );
    }
    if (provesDamage(thrown)) {
      await recordStartFault(ctx, checkpoint, use, thrown);
      throw thrown.with({ checkpointId: checkpoint.id, details: { location: checkpoint.location } });
    }
    if (checkpoint.replayable || isSourceFault(thrown)) throw thrown;
    await judge(ctx, handle, sandbox, source, thrown);
  }
}

const RESTORE_HINT = {
  hint: 'The sandbox stays paused. Try again, or resume with mode "files" to start from its files.',
};

/** What a provider keeps may have been started all the same; that is judged by looking. */
function isRestoreTimeout(thrown: unknown, { checkpoint, use }: Source): thrown is TorporError {
  const isTimeout = thrown instanceof TorporError && thrown.code === 'timeout';
  return isTimeout && use === 'memory' && checkpoint.parts.memory && !checkpoint.external;
}

/**
 * A start that failed and may have used its checkpoint up: its only copy may be what was just started. So it is
 * looked at. What runs is the sandbox; what is proved untouched has failed and may be tried again; anything else is
 * looked at later, and destroyed on no doubt.
 */
async function judge(
  ctx: Context,
  handle: OperationHandle,
  sandbox: Sandbox,
  source: Source,
  thrown: unknown,
): Promise<void> {
  const found = await observe(ctx, sandbox);
  if (found.is === 'gone' && found.untouched === true) throw thrown;
  const undecided = (cause: unknown) =>
    new CommitUnknown(`The start may have used checkpoint ${source.checkpoint.id} up.`, { cause });
  if (found.is !== 'running') throw undecided(thrown);
  const start = { source, started: adopted(source), skipped: [], durationMs: 0 };
  await commitStarted(ctx, handle.operation, start).catch((cause: unknown) => {
    throw cause instanceof FenceLost ? cause : undecided(cause);
  });
}

/** What can be said of a start that nobody saw the end of. */
function adopted({ use }: Source): Started {
  return use === 'memory' ? { kind: 'memory', lost: [] } : { kind: 'files', lost: ['processes'] };
}

async function launch(
  ctx: Context,
  handle: OperationHandle,
  sandbox: Sandbox,
  source: Source,
  skipped: readonly Skipped[],
): Promise<void> {
  const { operation, signal } = handle;
  const runtime = runtimeOf(ctx, sandbox);
  const instance: Instance = { sandboxId: sandbox.id, generation: sandbox.generation };
  const began = ctx.clock.monotonic();
  const call = <T>(what: string, work: (own: AbortSignal) => Promise<T>) =>
    within(ctx.clock, ctx.settings.callMs, what, work, signal);
  const from = forRuntime(ctx.store, source.checkpoint);
  const { env, services: declared, network, resources } = sandbox.config;
  const spec = { env, services: declared.map(({ jobId: _, ...service }) => service), network, resources };

  const started = await call('Starting', (own) => runtime.start(instance, from, source.use, spec, own));
  await passFaultPoint(ctx, operation, 'start-started');
  // A runtime that says "started" and did nothing is found out here, not by the user (R70).
  const observed = await call('Observing', (own) => runtime.observe(instance, own));
  if (observed.is !== 'running') {
    const why = 'why' in observed ? `: ${observed.why}` : '';
    throw new TorporError('unreachable', `The sandbox was started but is seen ${observed.is}${why}.`, {
      sandboxId: sandbox.id,
      // For those who have to tell a start that did nothing from a runtime that could not be asked.
      details: { seen: observed.is },
    });
  }
  await passFaultPoint(ctx, operation, 'start-observed');
  signal.throwIfAborted();
  const durationMs = Math.round(ctx.clock.monotonic() - began);
  await commitStarted(ctx, operation, { source, started, skipped, durationMs });
  if (source.use === 'memory' && started.kind === 'memory') await noteRestored(ctx, source);
}

/** The sandbox runs: that a suspicion could not be cleared is no reason to undo it. */
async function noteRestored(ctx: Context, { checkpoint }: Source): Promise<void> {
  await recordRestored(ctx, checkpoint).catch((error: unknown) =>
    ctx.report('a checkpoint stays suspected', { checkpointId: checkpoint.id, error }),
  );
}

/** A start that succeeded. */
interface SuccessfulStart {
  readonly source: Source;
  readonly started: Started;
  /** Better sources that were tried before. */
  readonly skipped: readonly Skipped[];
  readonly durationMs: number;
}

/** One transaction: the sandbox runs, its new lifetime is set, the event says what it came from. */
async function commitStarted(
  ctx: Context,
  operation: Operation,
  { source, started, skipped, durationMs }: SuccessfulStart,
): Promise<void> {
  const { checkpoint } = source;
  const lost = unite(source.lost, started.lost);
  const kind: SourceKind = source.kind === 'template' ? 'template' : started.kind;
  const memory = started.kind === 'memory';
  const hasJobs = await commitForSure(
    ctx,
    operation,
    async (tx, sandbox) => {
      const now = ctx.clock.now();
      const endsAt = newEnd(operation, sandbox, now);
      const told = skipped.length === 0 ? {} : { skipped: [...skipped] };
      const result = { source: { checkpointId: checkpoint.id, kind }, lost, ...told };
      await touch(tx, sandbox.id, now);
      await endOperation(tx, operation, now, {
        outcome: 'succeeded',
        result: { ...result, checkpointId: checkpoint.id },
      });
      const also = await jobsAtStart(ctx, tx, sandbox, { checkpoint, memory }, operation);
      const after = await take(
        ctx,
        tx,
        sandbox,
        'started',
        sandbox.state === 'creating' ? 'sandbox.started' : 'sandbox.resumed',
        { ...result, endsAt, durationMs },
        {
          operationId: operation.id,
          also,
          baseId: checkpoint.replayable ? checkpoint.id : null,
          ...(checkpoint.sandboxId === sandbox.id
            ? { checkpointId: checkpoint.replayable ? checkpoint.id : null }
            : {}),
          change: { endsAt, lost, reason: null, evidence: 'running', observedAt: now, startedAt: now },
        },
      );
      // The provider used it up; from here on it is not there for anybody.
      if (!checkpoint.replayable) await consume(ctx, tx, after, checkpoint.id);
      return also.some(({ type }) => type !== 'job.lost');
    },
    async (tx) => (await findOperation(tx, operation.id))?.outcome === 'succeeded',
  );
  if (hasJobs) ctx.jobWatch.begin(operation.sandboxId);
}

/**
 * The new lifetime. A resume starts the one that was asked for, or the configured one; whoever was only
 * sealed for a moment keeps the end it had.
 */
function newEnd(operation: Operation, sandbox: Sandbox, now: number): number | null {
  const asked = operation.kind === 'resume' ? operation.request.timeoutSeconds : undefined;
  if (asked !== undefined) return now + asked * 1_000;
  if (sandbox.endsAt !== null) return sandbox.endsAt;
  return sandbox.timeoutMs === null ? null : now + sandbox.timeoutMs;
}

async function consume(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  id: Source['checkpoint']['id'],
): Promise<void> {
  await tx.query('DELETE FROM checkpoint_names WHERE checkpoint_id = $1', [id]);
  await markDeleted(tx, id, ctx.clock.now());
  await tx.query('UPDATE checkpoints SET removed_at = $2 WHERE id = $1', [id, ctx.clock.now()]);
  await note(
    ctx,
    tx,
    sandbox,
    'checkpoint.deleted',
    { checkpointId: id, why: 'consumed' },
    { operationId: null },
  );
}

function unite(a: readonly Loss[], b: readonly Loss[]): Loss[] {
  return [...new Set([...a, ...b])];
}

/** Back to where it was: a sandbox that never ran has failed, any other is paused, or lost when nothing is left. */
async function giveUp(
  ctx: Context,
  operation: Operation,
  sandbox: Sandbox,
  error: TorporError,
): Promise<void> {
  const proof =
    sandbox.state === 'resuming' && isSourceFault(error) ? await proofOfLoss(ctx, sandbox) : undefined;
  await commit(ctx, operation, async (tx, locked) => {
    const now = ctx.clock.now();
    const { code, message } = error;
    const ids = { operationId: operation.id, baseId: locked.checkpointId };
    const loss = proof === undefined ? undefined : lossBy(proof);
    const failed =
      loss === undefined
        ? error
        : new TorporError('lost', `The sandbox is lost: ${loss.reason}`, {
            sandboxId: locked.id,
            ...lostDetails(loss),
            cause: error,
          });
    // What a snapshot or a fork was asked for is there, sealed and committed; only its source sleeps now.
    const sealed = operation.kind === 'snapshot' || operation.kind === 'fork' ? locked.checkpointId : null;
    await endOperation(
      tx,
      operation,
      now,
      sealed !== null
        ? { outcome: 'succeeded', result: { checkpointId: sealed } }
        : { outcome: 'failed', error: failed },
    );
    if (loss !== undefined) {
      const known = { evidence: 'ledger', observedAt: now } as const;
      const change = { ...loss, lost: ['processes', 'files'] as const, ...known };
      const also = await jobsAtEnd(ctx, tx, locked, 'sandbox_lost', operation.id);
      const head = { operationId: operation.id, baseId: null, checkpointId: null, change, also };
      const data = { reason: loss.reason, previousState: locked.state, ...loss.lostCheckpoint };
      await take(ctx, tx, locked, 'lost', 'sandbox.lost', data, head);
      return;
    }
    const event = locked.state === 'creating' ? 'sandbox.failed' : 'sandbox.resume_failed';
    const reason = locked.state === 'creating' ? message : locked.reason;
    const change = { reason, endsAt: null, evidence: 'ledger', observedAt: now } as const;
    const told = { code, message, ...checkpointIn(error) };
    await take(ctx, tx, locked, 'start_failed', event, { error: told }, { ...ids, change });
  });
}

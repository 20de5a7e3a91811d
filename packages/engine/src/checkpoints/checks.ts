/**
 * Checks the bytes of a checkpoint: inspection before a start, and verification in the background. Each part is checked by
 * itself. `health-record.ts` records the results.
 */
import {
  type CheckpointHealth,
  type CheckpointMode,
  type CheckpointPart,
  TorporError,
} from '@torpor/protocol';
import { type Context, runtimeOf } from '../context.ts';
import type { ContentSelection } from '../ports/checkpoint-store.ts';
import type { MemoryVerdict, Runtime } from '../ports/runtime.ts';
import { fetchReplica, isReplicated, replicaFault } from '../replication/fetch.ts';
import { withTimeout } from '../with-timeout.ts';
import { type Checkpoint, findCheckpoints, toSealedCheckpoint } from './checkpoint.ts';
import { type PartCheck, provesDamage, recordChecks } from './health-record.ts';
import { PartFault } from './part-fault.ts';

/**
 * Throws for a checkpoint that only another node has: what is not found here then proves nothing. The bytes of a replicated one
 * can be fetched.
 */
function refuseElsewhere(ctx: Context, checkpoint: Checkpoint): void {
  const { id, node, external } = checkpoint;
  if (node === ctx.node.name || external || isReplicated(checkpoint)) return;
  throw new TorporError(
    'checkpoint_unreadable',
    `Checkpoint ${id} is on the node "${node}", and not replicated.`,
    {
      checkpointId: id,
      details: { node },
      hint: `Ask the node "${node}", or wait until the checkpoint is replicated.`,
    },
  );
}

/** The parts that can be checked. A checkpoint that a provider keeps counts as files: its parts are not visible. */
function partsOf({ parts, external }: Checkpoint): readonly CheckpointPart[] {
  return parts.memory && !external ? ['files', 'memory'] : ['files'];
}

function selectionOf({ memoryEntries }: Runtime, part: CheckpointPart): ContentSelection {
  return { how: part === 'memory' ? 'only' : 'except', names: memoryEntries };
}

/**
 * Checks presence, sizes and seal records of what a start needs, but not the contents: that is `verify`. Throws the
 * checkpoint_* errors as `PartFault`.
 */
async function inspectFor(
  ctx: Context,
  checkpoint: Checkpoint,
  mode: CheckpointMode,
  bound: { readonly ms: number; readonly signal?: AbortSignal | undefined },
): Promise<MemoryVerdict> {
  refuseElsewhere(ctx, checkpoint);
  const runtime = runtimeOf(ctx, checkpoint);
  // One inspection of everything is the quickest when both parts are needed.
  const selection = mode === 'memory' ? undefined : selectionOf(runtime, 'files');
  return withTimeout(
    ctx.clock,
    bound.ms,
    `Inspecting checkpoint ${checkpoint.id}`,
    async (callSignal) => {
      const asking = runtime.checkUsable(toSealedCheckpoint(ctx.store, checkpoint), callSignal);
      asking.catch(() => {});
      // A checkpoint that the store does not have is missing, whatever the runtime answers.
      if (!checkpoint.external) await ctx.store.inspect(checkpoint.id, callSignal, selection);
      return asking;
    },
    bound.signal,
  ).catch((thrown: unknown) => {
    throw asPartFault(thrown, checkpoint, partAtFault(runtime, thrown));
  });
}

/** Checks presence and sizes of the whole checkpoint. */
export async function inspectWhole(ctx: Context, checkpoint: Checkpoint): Promise<void> {
  await inspectFor(ctx, checkpoint, widestMode(checkpoint), { ms: ctx.settings.callMs });
}

/** The mode of a start that uses every part. */
function widestMode(checkpoint: Checkpoint): CheckpointMode {
  return partsOf(checkpoint).includes('memory') ? 'memory' : 'files';
}

async function inspectMemory(
  ctx: Context,
  checkpoint: Checkpoint,
  bound: { readonly ms: number },
): Promise<void> {
  refuseElsewhere(ctx, checkpoint);
  const selection = selectionOf(runtimeOf(ctx, checkpoint), 'memory');
  await withTimeout(
    ctx.clock,
    bound.ms,
    `Inspecting the memory of checkpoint ${checkpoint.id}`,
    (callSignal) => ctx.store.inspect(checkpoint.id, callSignal, selection),
  ).catch((thrown: unknown) => {
    throw asPartFault(thrown, checkpoint, 'memory');
  });
}

async function inspectPart(
  ctx: Context,
  checkpoint: Checkpoint,
  part: CheckpointPart,
  ms: number,
): Promise<PartCheck> {
  const check =
    part === 'memory' ? inspectMemory(ctx, checkpoint, { ms }) : inspectFor(ctx, checkpoint, 'files', { ms });
  return { part, found: 'inspection', error: await failureOf(check) };
}

/** The error that proves the files of a checkpoint unusable. Undefined when the files are usable or cannot be read. */
export async function proofAgainstFiles(
  ctx: Context,
  checkpoint: Checkpoint,
): Promise<TorporError | undefined> {
  const { error } = await inspectPart(ctx, checkpoint, 'files', ctx.settings.callMs);
  if (!provesDamage(error)) return undefined;
  if (!isReplicated(checkpoint)) return error;
  const fault = await replicaFault(ctx, checkpoint, ctx.settings.callMs);
  return provesDamage(fault) ? error : undefined;
}

/**
 * Inspects what a start is going to use, records the result, and throws when it cannot be used. Parts that this machine has
 * lost are brought back when the checkpoint is replicated.
 */
export async function checkBeforeStart(
  ctx: Context,
  checkpoint: Checkpoint,
  mode: CheckpointMode,
  signal: AbortSignal,
): Promise<void> {
  if (!isReplicated(checkpoint)) return checkForStart(ctx, checkpoint, mode, signal, 'record');
  try {
    await checkForStart(ctx, checkpoint, mode, signal, 'leave');
  } catch (thrown) {
    if (!isCuredByReplica(thrown)) throw thrown;
    await bringBack(ctx, checkpoint, thrown, signal);
    const [again = checkpoint] = (await findCheckpoints(ctx.db, [checkpoint.id])).values();
    await checkForStart(ctx, again, mode, signal, 'record');
  }
}

/** A program that memory needs is a part of the replica too. */
function isCuredByReplica(thrown: unknown): boolean {
  return provesDamage(thrown) || (thrown instanceof TorporError && thrown.code === 'checkpoint_incompatible');
}

/** Throws only when the store cannot be used now. What the store has lost too is left to the check that follows. */
async function bringBack(
  ctx: Context,
  checkpoint: Checkpoint,
  thrown: unknown,
  signal: AbortSignal,
): Promise<void> {
  const isKnown = checkpoint.faults.some(({ found }) => found !== 'inspection');
  try {
    await fetchReplica(ctx, checkpoint, isKnown ? 'contents' : 'presence', signal);
  } catch (failure) {
    if (!provesDamage(failure)) throw failure;
    ctx.report('a checkpoint is lost in the store too', {
      checkpointId: checkpoint.id,
      error: failure,
      local: thrown,
    });
  }
}

async function checkForStart(
  ctx: Context,
  checkpoint: Checkpoint,
  mode: CheckpointMode,
  signal: AbortSignal,
  damage: 'record' | 'leave',
): Promise<void> {
  const parts = partsOf(checkpoint).filter((part) => part === 'files' || mode === 'memory');
  let verdict: MemoryVerdict;
  try {
    verdict = await inspectFor(ctx, checkpoint, mode, { ms: ctx.settings.callMs, signal });
  } catch (thrown) {
    if (provesDamage(thrown) && damage === 'record')
      await recordChecks(ctx, checkpoint, [faultOf(thrown, 'inspection')]);
    throw thrown;
  }
  if (checkpoint.health !== 'ok') {
    const checks: PartCheck[] = parts.map((part) => ({ part, found: 'inspection', error: null }));
    await recordChecks(ctx, checkpoint, checks);
    for (const part of parts) await readAgain(ctx, checkpoint, part, signal);
  }
  if (mode === 'memory' && !verdict.usable) {
    const error = new TorporError(
      'checkpoint_incompatible',
      `The memory of ${checkpoint.id}: ${verdict.why}.`,
    );
    throw new PartFault(error, checkpoint, 'memory');
  }
}

/** Reads contents that were found damaged again before anything is started from them. */
async function readAgain(
  ctx: Context,
  checkpoint: Checkpoint,
  part: CheckpointPart,
  signal: AbortSignal,
): Promise<void> {
  const known = checkpoint.faults.find((fault) => fault.part === part && fault.found === 'contents');
  if (known === undefined) return;
  const check = await verifyPart(ctx, checkpoint, part, { givesWay: false, signal });
  signal.throwIfAborted();
  await recordChecks(ctx, checkpoint, [check]);
  if (check.error === null) return;
  // If the memory cannot be read, keep the recorded fault and try the next source.
  if (part === 'files' || provesDamage(check.error)) throw check.error;
  throw asPartFault(new TorporError(known.code, known.detail), checkpoint, part);
}

/** Records that a start failed because of the checkpoint itself, although `checkBeforeStart` found no fault. */
export async function recordStartFault(
  ctx: Context,
  checkpoint: Checkpoint,
  mode: CheckpointMode,
  error: TorporError,
): Promise<void> {
  // The caller has inspected the files, so a start from memory failed because of the memory.
  const part: CheckpointPart = checkpoint.external ? 'files' : mode;
  const again = await inspectPart(ctx, checkpoint, part, ctx.settings.callMs);
  const check: PartCheck = provesDamage(again.error) ? again : { part, found: 'contents', error };
  await recordChecks(ctx, checkpoint, [check]);
}

/** The result of a check of every part. */
export interface PartsCheck {
  readonly checks: readonly PartCheck[];
  /** Why memory that is not damaged cannot be restored here. Null when it can be restored, or this is not known. */
  readonly unusableMemory: string | null;
}

/** Checks presence and sizes of every part. */
export async function checkParts(ctx: Context, checkpoint: Checkpoint): Promise<PartsCheck> {
  const ms = ctx.settings.inspectMs;
  const parts = partsOf(checkpoint);
  const inspection = inspectFor(ctx, checkpoint, widestMode(checkpoint), { ms });
  const error = await failureOf(inspection);
  if (provesDamage(error) && isReplicated(checkpoint)) {
    // The next start fetches what this machine has lost, so what counts is the store.
    const fault = await replicaFault(ctx, checkpoint, ms);
    if (!provesDamage(fault)) {
      const checks = parts.map((part): PartCheck => ({ part, found: 'inspection', error: fault }));
      return { checks, unusableMemory: null };
    }
  }
  if (provesDamage(error)) {
    const checks = await Promise.all(parts.map((part) => inspectPart(ctx, checkpoint, part, ms)));
    return { checks, unusableMemory: null };
  }
  const checks = parts.map((part): PartCheck => ({ part, found: 'inspection', error }));
  return { checks, unusableMemory: error === null ? whyUnusable(checkpoint, await inspection) : null };
}

function whyUnusable(checkpoint: Checkpoint, verdict: MemoryVerdict): string | null {
  return partsOf(checkpoint).includes('memory') && !verdict.usable ? verdict.why : null;
}

/** Reads every byte of the checkpoint, and records and returns its health. */
export function verifyCheckpoint(ctx: Context, checkpoint: Checkpoint): Promise<CheckpointHealth> {
  return ctx.cache.hold(checkpoint.id, () => verifyHeld(ctx, checkpoint));
}

/** For an evicted checkpoint: asks the store whether it has every object, instead of fetching them to read their contents. */
export async function lookInStore(ctx: Context, checkpoint: Checkpoint): Promise<void> {
  const { checks } = await checkParts(ctx, checkpoint);
  await recordChecks(ctx, checkpoint, checks, { scrubbedAt: ctx.clock.now(), verifiedAt: null });
}

async function verifyHeld(ctx: Context, checkpoint: Checkpoint): Promise<CheckpointHealth> {
  const checks: PartCheck[] = [];
  for (const part of partsOf(checkpoint)) {
    let check = await verifyPart(ctx, checkpoint, part, { givesWay: true });
    if (provesDamage(check.error) && isReplicated(checkpoint)) {
      const isBack = await fetchReplica(ctx, checkpoint, 'contents', ctx.stopping).catch(() => false);
      if (isBack) check = await verifyPart(ctx, checkpoint, part, { givesWay: true });
    }
    checks.push(check);
  }
  const scrubbedAt = ctx.clock.now();
  // Contents that could not be read are neither healthy nor damaged; the last verification stays valid.
  const isRead = checks.every(({ error }) => error === null || provesDamage(error));
  return recordChecks(ctx, checkpoint, checks, { scrubbedAt, verifiedAt: isRead ? scrubbedAt : null });
}

async function verifyPart(
  ctx: Context,
  checkpoint: Checkpoint,
  part: CheckpointPart,
  { givesWay, signal }: { readonly givesWay: boolean; readonly signal?: AbortSignal },
): Promise<PartCheck> {
  refuseElsewhere(ctx, checkpoint);
  const runtime = runtimeOf(ctx, checkpoint);
  const reading = withTimeout(
    ctx.clock,
    ctx.settings.operationMs,
    `Verifying the ${part} of checkpoint ${checkpoint.id}`,
    async (callSignal) => {
      if (!checkpoint.external) {
        // First rebuilds a damaged manifest from its part records. `verify` reports everything else.
        await ctx.store.rebuild(checkpoint.id, callSignal).catch(() => {});
        const giveWay = givesWay ? () => ctx.foreground.giveWay(callSignal) : undefined;
        await ctx.store.verify(checkpoint.id, callSignal, selectionOf(runtime, part), giveWay);
      }
      if (part === 'files') await runtime.verify(toSealedCheckpoint(ctx.store, checkpoint), callSignal);
    },
    signal,
  ).catch((thrown: unknown) => {
    throw asPartFault(thrown, checkpoint, part);
  });
  const error = await failureOf(reading);
  if (!provesDamage(error)) return { part, found: 'contents', error };
  // Missing contents may come back, and an inspection is enough to clear such a fault.
  const again = await inspectPart(ctx, checkpoint, part, ctx.settings.callMs);
  return provesDamage(again.error) ? again : { part, found: 'contents', error };
}

function faultOf(error: TorporError, found: PartCheck['found']): PartCheck {
  return { part: error instanceof PartFault ? error.part : 'files', found, error };
}

/** Known by the entry that the store's error names. Errors of a runtime are about the files. */
function partAtFault({ memoryEntries }: Runtime, thrown: unknown): CheckpointPart {
  const entry = thrown instanceof TorporError ? thrown.toBody().details?.['entry'] : undefined;
  const [first = ''] = String(entry ?? '').split('/', 1);
  return memoryEntries.includes(first) ? 'memory' : 'files';
}

/** A store that does not answer in time leaves the checkpoint unread, which is no fault of the checkpoint. */
function asPartFault(thrown: unknown, checkpoint: Checkpoint, part: CheckpointPart): unknown {
  if (!(thrown instanceof TorporError)) return thrown;
  if (thrown.code !== 'timeout') return new PartFault(thrown, checkpoint, part);
  const message = `Checkpoint ${checkpoint.id} could not be read in time.`;
  const unreadable = new TorporError('checkpoint_unreadable', message, { cause: thrown });
  return new PartFault(unreadable, checkpoint, part);
}

async function failureOf(work: Promise<unknown>): Promise<TorporError | null> {
  return work.then(
    () => null,
    (thrown: unknown) => TorporError.from(thrown),
  );
}

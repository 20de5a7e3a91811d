/**
 * Checks the bytes of a checkpoint: inspection before a start, and verification in the background. Each part is checked by
 * itself. `health-record.ts` records the results.
 */
import { type CheckpointHealth, type CheckpointPart, TorporError } from '@torpor/protocol';
import { type Context, runtimeOf } from '../context.ts';
import type { ContentSelection } from '../ports/checkpoint-store.ts';
import type { MemoryVerdict, Runtime } from '../ports/runtime.ts';
import { withTimeout } from '../with-timeout.ts';
import { type Checkpoint, forRuntime } from './checkpoint.ts';
import { type PartCheck, provesDamage, recordChecks } from './health-record.ts';

/** The parts that can be checked. A checkpoint that a provider keeps counts as files: its parts are not visible. */
function partsOf({ parts, external }: Checkpoint): readonly CheckpointPart[] {
  return parts.memory && !external ? ['files', 'memory'] : ['files'];
}

function selectionOf({ memoryEntries }: Runtime, part: CheckpointPart): ContentSelection {
  return { how: part === 'memory' ? 'only' : 'except', names: memoryEntries };
}

/**
 * Checks presence, sizes and seal records of what a start needs, but not the contents: that is `verify`. Throws the
 * checkpoint_* errors, with the part at fault in `details.part`.
 */
async function inspectFor(
  ctx: Context,
  checkpoint: Checkpoint,
  use: CheckpointPart,
  bound: { readonly ms: number; readonly signal?: AbortSignal | undefined },
): Promise<MemoryVerdict> {
  const runtime = runtimeOf(ctx, checkpoint);
  // One inspection of everything is the quickest when both parts are needed.
  const selection = use === 'memory' ? undefined : selectionOf(runtime, 'files');
  return withTimeout(
    ctx.clock,
    bound.ms,
    `Inspecting checkpoint ${checkpoint.id}`,
    async (callSignal) => {
      const asking = runtime.inspect(forRuntime(ctx.store, checkpoint), callSignal);
      asking.catch(() => {});
      // A checkpoint that the store does not have is missing, whatever the runtime answers.
      if (!checkpoint.external) await ctx.store.inspect(checkpoint.id, callSignal, selection);
      return asking;
    },
    bound.signal,
  ).catch((thrown: unknown) => {
    throw asCheckpointError(thrown, checkpoint, partAtFault(runtime, thrown));
  });
}

/** Checks presence and sizes of the whole checkpoint. */
export async function inspectWhole(ctx: Context, checkpoint: Checkpoint): Promise<void> {
  await inspectFor(ctx, checkpoint, wholeOf(checkpoint), { ms: ctx.settings.callMs });
}

function wholeOf(checkpoint: Checkpoint): CheckpointPart {
  return partsOf(checkpoint).includes('memory') ? 'memory' : 'files';
}

async function inspectMemory(
  ctx: Context,
  checkpoint: Checkpoint,
  bound: { readonly ms: number },
): Promise<void> {
  const selection = selectionOf(runtimeOf(ctx, checkpoint), 'memory');
  await withTimeout(
    ctx.clock,
    bound.ms,
    `Inspecting the memory of checkpoint ${checkpoint.id}`,
    (callSignal) => ctx.store.inspect(checkpoint.id, callSignal, selection),
  ).catch((thrown: unknown) => {
    throw asCheckpointError(thrown, checkpoint, 'memory');
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
  return provesDamage(error) ? error : undefined;
}

/** Inspects what a start is going to use, records the result, and throws when it cannot be used. */
export async function checkBeforeStart(
  ctx: Context,
  checkpoint: Checkpoint,
  use: CheckpointPart,
  signal: AbortSignal,
): Promise<void> {
  const { id } = checkpoint;
  const parts = partsOf(checkpoint).filter((part) => part === 'files' || use === 'memory');
  let verdict: MemoryVerdict;
  try {
    verdict = await inspectFor(ctx, checkpoint, use, { ms: ctx.settings.callMs, signal });
  } catch (thrown) {
    if (provesDamage(thrown)) await recordChecks(ctx, checkpoint, [faultOf(thrown, 'inspection')]);
    throw thrown;
  }
  if (checkpoint.health !== 'ok') {
    const checks: PartCheck[] = parts.map((part) => ({ part, found: 'inspection', error: null }));
    await recordChecks(ctx, checkpoint, checks);
    for (const part of parts) await readAgain(ctx, checkpoint, part, signal);
  }
  if (use === 'memory' && !verdict.usable) {
    throw new TorporError('checkpoint_incompatible', `The memory of ${id}: ${verdict.why}.`, {
      checkpointId: id,
      details: { location: checkpoint.location, part: 'memory' },
    });
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
  const check = await verifyPart(ctx, checkpoint, part, signal);
  signal.throwIfAborted();
  await recordChecks(ctx, checkpoint, [check]);
  if (check.error === null) return;
  // If the memory cannot be read, keep the recorded fault and try the next source.
  if (part === 'files' || provesDamage(check.error)) throw check.error;
  throw asCheckpointError(new TorporError(known.code, known.detail), checkpoint, part);
}

/** Records that a start failed because of the checkpoint itself, although presence and sizes are right. */
export async function recordStartFault(
  ctx: Context,
  checkpoint: Checkpoint,
  use: CheckpointPart,
  error: TorporError,
): Promise<void> {
  const part = checkpoint.external ? 'files' : use;
  const again = await inspectPart(ctx, checkpoint, part, ctx.settings.callMs);
  const check: PartCheck = provesDamage(again.error) ? again : { part, found: 'contents', error };
  await recordChecks(ctx, checkpoint, [check]);
}

/** Checks presence and sizes of every part, for the rounds. */
export async function checkParts(ctx: Context, checkpoint: Checkpoint): Promise<readonly PartCheck[]> {
  const ms = ctx.settings.inspectMs;
  const parts = partsOf(checkpoint);
  const error = await failureOf(inspectFor(ctx, checkpoint, wholeOf(checkpoint), { ms }));
  if (!provesDamage(error)) return parts.map((part) => ({ part, found: 'inspection', error }));
  return Promise.all(parts.map((part) => inspectPart(ctx, checkpoint, part, ms)));
}

/** Reads every byte of the checkpoint, and records and returns its health. */
export async function verifyCheckpoint(ctx: Context, checkpoint: Checkpoint): Promise<CheckpointHealth> {
  const checks: PartCheck[] = [];
  for (const part of partsOf(checkpoint)) checks.push(await verifyPart(ctx, checkpoint, part));
  const scrubbedAt = ctx.clock.now();
  // Contents that could not be read are neither healthy nor damaged; the last verification stays valid.
  const isRead = checks.every(({ error }) => error === null || provesDamage(error));
  return recordChecks(ctx, checkpoint, checks, { scrubbedAt, verifiedAt: isRead ? scrubbedAt : null });
}

async function verifyPart(
  ctx: Context,
  checkpoint: Checkpoint,
  part: CheckpointPart,
  signal?: AbortSignal,
): Promise<PartCheck> {
  const runtime = runtimeOf(ctx, checkpoint);
  const reading = withTimeout(
    ctx.clock,
    ctx.settings.operationMs,
    `Verifying the ${part} of checkpoint ${checkpoint.id}`,
    async (callSignal) => {
      if (!checkpoint.external) {
        // A damaged manifest that its parts can prove is mended first. What else is wrong is for `verify` to say.
        await ctx.store.rebuild(checkpoint.id, callSignal).catch(() => {});
        await ctx.store.verify(checkpoint.id, callSignal, selectionOf(runtime, part));
      }
      if (part === 'files') await runtime.verify(forRuntime(ctx.store, checkpoint), callSignal);
    },
    signal,
  ).catch((thrown: unknown) => {
    throw asCheckpointError(thrown, checkpoint, part);
  });
  const error = await failureOf(reading);
  if (!provesDamage(error)) return { part, found: 'contents', error };
  // Missing contents may come back, and an inspection is enough to clear such a fault.
  const again = await inspectPart(ctx, checkpoint, part, ctx.settings.callMs);
  return provesDamage(again.error) ? again : { part, found: 'contents', error };
}

function faultOf(error: TorporError, found: PartCheck['found']): PartCheck {
  return { part: error.toBody().details?.['part'] === 'memory' ? 'memory' : 'files', found, error };
}

/** Known by the entry that the store's error names. Errors of a runtime are about the files. */
function partAtFault({ memoryEntries }: Runtime, thrown: unknown): CheckpointPart {
  const entry = thrown instanceof TorporError ? thrown.toBody().details?.['entry'] : undefined;
  const [first = ''] = String(entry ?? '').split('/', 1);
  return memoryEntries.includes(first) ? 'memory' : 'files';
}

/** A store that does not answer in time leaves the checkpoint unread, which is no fault of the checkpoint. */
function asCheckpointError(thrown: unknown, checkpoint: Checkpoint, part: CheckpointPart): unknown {
  if (!(thrown instanceof TorporError)) return thrown;
  const fields = { checkpointId: checkpoint.id, details: { location: checkpoint.location, part } };
  if (thrown.code !== 'timeout') return thrown.with(fields);
  return new TorporError('checkpoint_unreadable', `Checkpoint ${checkpoint.id} could not be read in time.`, {
    ...fields,
    cause: thrown,
  });
}

async function failureOf(work: Promise<unknown>): Promise<TorporError | null> {
  return work.then(
    () => null,
    (thrown: unknown) => TorporError.from(thrown),
  );
}

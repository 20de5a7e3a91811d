/**
 * getOrSpawn: resumes or replaces the sandbox of a session, so that a sandbox runs afterwards, or throws an error.
 *
 * Any number of concurrent callers on any number of servers create one sandbox. The plan to create one is written before
 * the sandbox is created, under the number of the session's next sandbox, and that number is part of the idempotency key
 * of the engine's create. So a second caller, or the server after a crash, gets the sandbox that was created.
 */
import type { CheckpointId, CreateRequest, Loss, SandboxView, SessionChange, Source } from '@torpor/protocol';
import { isTerminal, type SandboxId, TorporError } from '@torpor/protocol';
import type { Context } from './context.ts';
import { decide, type FoundSandbox, isTransient } from './decide.ts';
import { recordWakeFailure, type WakeFailure } from './failed-wake.ts';
import { lastFiles, timeOfFiles } from './last-files.ts';
import { checkpointHoldsLastTurn, sandboxHoldsLastTurn } from './lineage.ts';
import {
  addLeftover,
  type Binding,
  bind,
  clearError,
  findSession,
  markSpecFailed,
  noSuchSession,
  type Plan,
  recordResume,
  replacePlan,
  type Session,
  sessionEnded,
  writePlan,
} from './session.ts';
import { missingRuntime, requireRuntime } from './session-runtime.ts';

export interface BoundSession {
  readonly session: Session;
  readonly sandbox: SandboxView;
}

/** Metadata of a sandbox: the session that it was created for. Finds sandboxes that a crash left behind. */
export const SESSION_LABEL = 'torpor.session';

async function bindUntilRunning(
  ctx: Context,
  id: Session['id'],
  signal: AbortSignal,
): Promise<BoundSession | WakeFailure> {
  let failure: { readonly of: SandboxId | null; readonly error: TorporError } | undefined;
  for (;;) {
    signal.throwIfAborted();
    const session = await openSession(ctx, id);
    if (session.plan !== null) {
      const made = await executePlan(ctx, session, session.plan, signal);
      if (made !== undefined) return made;
      continue;
    }
    const { found, sandbox } = await observeSandbox(ctx, session);
    const last = failure?.of === session.sandboxId ? failure?.error : undefined;
    const decision = decide(found, last);
    switch (decision.action) {
      case 'use':
        if (sandbox !== undefined)
          return { session: await recordMissingFiles(ctx, session, sandbox), sandbox };
        break;
      case 'refuse':
        throw last ?? stateUnknown(session);
      case 'wait':
        failure = undefined;
        await ctx.clock.sleep(ctx.settings.lookAgainMs, signal);
        break;
      case 'spawn':
        await planSpawn(ctx, session, decision.why, last);
        break;
      default:
        failure = await resumeOrRepair(ctx, session, decision.action, signal);
    }
  }
}

async function openSession(ctx: Context, id: Session['id']): Promise<Session> {
  const session = await findSession(ctx.db, id);
  if (session === undefined) throw noSuchSession(id);
  if (session.endedAt !== null) throw sessionEnded(session);
  return session;
}

async function observeSandbox(
  ctx: Context,
  session: Session,
): Promise<{ readonly found: FoundSandbox; readonly sandbox?: SandboxView }> {
  const { org, sandboxId } = session;
  if (sandboxId === null) return { found: { is: 'none' } };
  try {
    const sandbox = await ctx.engine.get(org, sandboxId);
    // Without the runtime this server cannot reach the files. The user decides whether the session leaves them behind.
    if (!isTerminal(sandbox.state)) requireRuntime(ctx, session, sandbox.runtime);
    return { found: { is: 'sandbox', state: sandbox.state, evidence: sandbox.evidence }, sandbox };
  } catch (thrown) {
    if (thrown instanceof TorporError && thrown.code === 'not_found') return { found: { is: 'absent' } };
    throw thrown;
  }
}

/** A resume may fall back to the sandbox's own files and older checkpoints; beyond that the sandbox is replaced. */
const FALLBACK = ['files', 'previous'] as const;

async function resumeOrRepair(
  ctx: Context,
  session: Session,
  action: 'resume' | 'repair',
  signal: AbortSignal,
) {
  const { org, sandboxId } = session;
  if (sandboxId === null) return undefined;
  try {
    if (action === 'repair') {
      const { state } = await ctx.engine.compareOne(org, sandboxId);
      // Another operation may have kept the engine from repairing the sandbox.
      if (state === 'running') await ctx.clock.sleep(ctx.settings.lookAgainMs, signal);
      return undefined;
    }
    const { lost, resumed, source, sandbox } = await resumeWithRetry(ctx, org, sandboxId, signal);
    if (resumed) await recordRun(ctx, session, sandbox, { did: 'resumed', lost, source });
    return undefined;
  } catch (thrown) {
    signal.throwIfAborted();
    return { of: sandboxId, error: TorporError.from(thrown) };
  }
}

/** A resume after which the instance is gone is repeated once. The second such failure is final (R70). */
async function resumeWithRetry({ engine }: Context, org: string, id: SandboxId, signal: AbortSignal) {
  const resume = () => engine.resume({ org, signal }, id, { fallback: [...FALLBACK] });
  try {
    return await resume();
  } catch (thrown) {
    if (!instanceIsGone(thrown)) throw thrown;
  }
  try {
    return await resume();
  } catch (thrown) {
    if (!instanceIsGone(thrown)) throw thrown;
    throw new TorporError(thrown.code, thrown.message, { sandboxId: id, retryable: false, cause: thrown });
  }
}

function instanceIsGone(thrown: unknown): thrown is TorporError {
  return thrown instanceof TorporError && thrown.toBody().details?.['seen'] === 'gone';
}

/** Records it when the bound sandbox lacks the files of the last turn, and returns the session after that. */
async function recordMissingFiles(ctx: Context, session: Session, sandbox: SandboxView): Promise<Session> {
  // The loss is recorded already: the next turn brings the history.
  if (session.historyDue || (await sandboxHoldsLastTurn(ctx, session, sandbox))) return session;
  await recordRun(ctx, session, sandbox, { did: 'used', lost: ['files'], source: null });
  return (await findSession(ctx.db, session.id)) ?? session;
}

/** Records that the session's sandbox runs, resumed by us or found running, perhaps with older files than the last turn left. */
async function recordRun(
  ctx: Context,
  session: Session,
  sandbox: SandboxView,
  { did, lost, source }: { did: 'resumed' | 'used'; lost: readonly Loss[]; source: Source | null },
): Promise<void> {
  const threadKept = !lost.includes('files') && (await sandboxHoldsLastTurn(ctx, session, sandbox));
  const all: Loss[] = threadKept ? [...lost] : [...new Set<Loss>([...lost, 'files'])];
  const since = source?.checkpointId ?? sandbox.baseId;
  const change: SessionChange = {
    did,
    at: ctx.clock.now(),
    why: all.length === 0 ? null : `lost ${all.join(', ')}`,
    message: null,
    formerSandboxId: null,
    from: null,
    lost: all,
    lostSince: threadKept ? null : await timeOfFiles(ctx, session, since),
    threadKept,
  };
  await ctx.db.transaction((tx) => recordResume(tx, session, { change, source }, ctx.settings.wakesKept));
}

async function planSpawn(
  ctx: Context,
  session: Session,
  found: string,
  failure: TorporError | undefined,
): Promise<void> {
  const formerId = session.sandboxId ?? session.formerId;
  const healed = found === 'first' ? session.change : null;
  const isEmpty = healed?.did === 'healed' && !healed.threadKept && healed.from === null;
  const from = isEmpty ? null : await lastFiles(ctx, session.org, formerId, session.spec.sandbox.runtime);
  const why = healed?.why ?? found;
  const message = failure?.message ?? healed?.message ?? null;
  // A sandbox that we could not start is not killed when it may be startable later.
  const retire = formerId !== null && !isEmpty && (from !== null || failure === undefined);
  const decided: Plan = { at: ctx.clock.now(), from, why, message, formerId, retire };
  await ctx.db.transaction((tx) => writePlan(tx, session, decided));
  await ctx.atFaultPoint('session.planned');
}

/** Creates the planned sandbox and binds it. Undefined when another caller bound one first, or another plan was written. */
async function executePlan(
  ctx: Context,
  session: Session,
  planned: Plan,
  signal: AbortSignal,
): Promise<BoundSession | WakeFailure | undefined> {
  const { org } = session;
  const idempotencyKey = `${session.id}.${session.spawns}`;
  let sandbox: SandboxView;
  try {
    sandbox = (await ctx.engine.create({ org, signal, idempotencyKey }, requestOf(session, planned))).sandbox;
  } catch (thrown) {
    // Only our own timeout says something about the create; a caller that went away does not.
    const isLate = signal.reason instanceof TorporError && signal.reason.code === 'timeout';
    if (signal.aborted && !isLate) throw signal.reason;
    const failed = isLate ? signal.reason : TorporError.from(thrown);
    return handleFailedCreate(ctx, session, planned, failed);
  }
  await ctx.atFaultPoint('session.spawned');
  const binding = await bindingOf(ctx, session, planned, sandbox);
  const isBound = await ctx.db.transaction(async (tx) => {
    const won = await bind(tx, session, binding, ctx.settings.wakesKept);
    const now = won ? undefined : await findSession(tx, session.id);
    // Another caller may have bound this very sandbox. Otherwise the sandbox is not needed, and is killed later.
    if (now !== undefined && isUnused(now, sandbox.id)) await addLeftover(tx, session, sandbox.id);
    if (won && planned.retire && planned.formerId !== null) await addLeftover(tx, session, planned.formerId);
    return won;
  });
  if (!isBound) return undefined;
  await ctx.atFaultPoint('session.bound');
  const now = await findSession(ctx.db, session.id);
  return now === undefined ? undefined : { session: now, sandbox };
}

function isUnused({ endedAt, sandboxId, change }: Session, id: SandboxId): boolean {
  return endedAt !== null || (sandboxId !== id && change?.formerSandboxId !== id);
}

/**
 * A transient failure keeps the plan for the next attempt. After a permanent failure the sandbox is created without the
 * files. When that fails too, the plan is dropped, and the next attempt decides anew.
 */
async function handleFailedCreate(
  ctx: Context,
  session: Session,
  planned: Plan,
  failed: TorporError,
): Promise<WakeFailure | undefined> {
  if (isTransient(failed)) return { error: failed, at: 'spawn' };
  if (planned.from !== null) {
    ctx.report('a session could not start from its last files', { sessionId: session.id, error: failed });
    const without: Plan = { ...planned, from: null, retire: false };
    await ctx.db.transaction((tx) => replacePlan(tx, session, without));
    return undefined;
  }
  if (planned.why === 'request') {
    await ctx.db.transaction((tx) => replacePlan(tx, session, null));
    return { error: missingRuntime(ctx, session, planned.runtime) ?? failed, at: 'request' };
  }
  await ctx.db.transaction((tx) => markSpecFailed(tx, session));
  return { error: missingRuntime(ctx, session, session.spec.sandbox.runtime) ?? failed, at: 'spawn' };
}

/** No turn is claimed while a sandbox is planned, so the last turn now is still the last when the sandbox is bound. */
async function bindingOf(
  ctx: Context,
  session: Session,
  { from, why, message, formerId, runtime }: Plan,
  sandbox: SandboxView,
): Promise<Binding> {
  const isFirst = formerId === null && session.change === null;
  const hasItsFiles =
    from !== null && formerId !== null && (await checkpointHoldsLastTurn(ctx, session, formerId, from));
  const threadKept = isFirst || hasItsFiles;
  const lost: Loss[] = isFirst ? [] : hasItsFiles ? ['processes'] : ['processes', 'files'];
  const lostSince = threadKept ? null : await timeOfFiles(ctx, session, from);
  const about = { at: ctx.clock.now(), why, message, formerSandboxId: formerId, from };
  const { spec } = session;
  return {
    sandboxId: sandbox.id,
    source: await sourceOfStart(ctx, sandbox.id),
    change: { did: 'spawned', ...about, lost, lostSince, threadKept },
    ...(runtime === undefined ? {} : { spec: { ...spec, sandbox: { ...spec.sandbox, runtime } } }),
  };
}

/** What a new sandbox was really started from. Its first start is near the beginning of its ledger. */
async function sourceOfStart({ engine }: Context, sandboxId: SandboxId): Promise<Source | null> {
  const events = await engine.events({ sandboxId, afterSeq: 0 }, 100);
  const started = events.find(({ type }) => type === 'sandbox.started');
  return started === undefined ? null : (started.data['source'] as Source);
}

function requestOf({ id, spec }: Session, { from, runtime }: Plan): CreateRequest {
  const { template, from: specFrom, metadata, ...rest } = spec.sandbox;
  return {
    ...rest,
    ...(runtime === undefined ? {} : { runtime }),
    ...sourceOf(from, template, specFrom),
    metadata: { ...metadata, [SESSION_LABEL]: id },
  };
}

/** A checkpoint belongs to its runtime already. */
function sourceOf(from: CheckpointId | null, template?: string, specFrom?: CheckpointId) {
  if (from !== null) return { from };
  if (specFrom !== undefined) return { from: specFrom };
  return template === undefined ? {} : { template };
}

function stateUnknown({ sandboxId }: Session): TorporError {
  return new TorporError('unreachable', "The runtime could not tell the state of the session's sandbox.", {
    ...(sandboxId === null ? {} : { sandboxId }),
  });
}

/** Gets or creates the sandbox within `spawnMs`. A failure is recorded with the session, and cleared by the next success. */
export async function getOrSpawn(
  ctx: Context,
  id: Session['id'],
  parent?: AbortSignal,
): Promise<BoundSession> {
  const timer = new AbortController();
  const late = new TorporError('timeout', `No sandbox was running within ${ctx.settings.spawnMs} ms.`);
  const timeout = new AbortController();
  ctx.clock.sleep(ctx.settings.spawnMs, timer.signal).then(
    () => timeout.abort(late),
    () => {},
  );
  const signals = [timeout.signal, ctx.stopping, ...(parent === undefined ? [] : [parent])];
  const got = await bindUntilRunning(ctx, id, AbortSignal.any(signals))
    .catch((thrown: unknown): WakeFailure => ({ error: TorporError.from(thrown), at: 'wake' }))
    .finally(() => timer.abort());
  if ('error' in got) {
    if (ctx.stopping.aborted || parent?.aborted === true) throw got.error;
    throw await recordWakeFailure(ctx, id, got);
  }
  const { error, specFailed } = got.session;
  if (error !== null || specFailed) await ctx.db.transaction((tx) => clearError(tx, id, ctx.clock.now()));
  return { ...got, session: { ...got.session, error: null } };
}

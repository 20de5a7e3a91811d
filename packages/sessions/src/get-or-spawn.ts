/**
 * getOrSpawn: whatever became of the sandbox of a session, there is one that runs afterwards, or an error that
 * passes. However many ask at once, on however many servers, one sandbox is made: a decision to make one is
 * written before it is acted on, under the number of the session's next sandbox, and that number is also the
 * idempotency key of the engine's create. So whoever comes second, or after a crash, gets the one that was made.
 */
import type { CheckpointId, CreateRequest, Loss, SandboxView, SessionChange, Source } from '@torpor/protocol';
import { isTerminal, type SandboxId, TorporError } from '@torpor/protocol';
import type { Context } from './context.ts';
import { decide, type Found, isPassing } from './decide.ts';
import { type Failure, noteFailure } from './failed-wake.ts';
import { lastFiles, timeOfFiles } from './last-files.ts';
import { checkpointHoldsLastTurn, sandboxHoldsLastTurn } from './lineage.ts';
import { noRuntimeFor, requireRuntime } from './runtime-of.ts';
import {
  addLeftover,
  type Binding,
  bind,
  clearError,
  findSession,
  markSpecFailed,
  noSuchSession,
  noteResumed,
  type Plan,
  replacePlan,
  type Session,
  sessionEnded,
  writePlan,
} from './session.ts';

export interface Bound {
  readonly session: Session;
  readonly sandbox: SandboxView;
}

/** Which session a sandbox was made for, so that what a crash left of one that ended can be found. */
export const SESSION_LABEL = 'torpor.session';

async function getOrSpawn(ctx: Context, id: Session['id'], signal: AbortSignal): Promise<Bound | Failure> {
  let failure: { readonly of: SandboxId | null; readonly error: TorporError } | undefined;
  for (;;) {
    signal.throwIfAborted();
    const session = await openSession(ctx, id);
    if (session.plan !== null) {
      const made = await carryOut(ctx, session, session.plan, signal);
      if (made !== undefined) return made;
      continue;
    }
    const { found, sandbox } = await look(ctx, session);
    const last = failure?.of === session.sandboxId ? failure?.error : undefined;
    const decision = decide(found, last);
    switch (decision.act) {
      case 'use':
        if (sandbox !== undefined) return { session: await withItsFiles(ctx, session, sandbox), sandbox };
        break;
      case 'tell':
        throw last ?? cannotBeAsked(session);
      case 'wait':
        failure = undefined;
        await ctx.clock.sleep(ctx.settings.lookAgainMs, signal);
        break;
      case 'spawn':
        await plan(ctx, session, decision.why, last);
        break;
      default:
        failure = await attempt(ctx, session, decision.act, signal);
    }
  }
}

async function openSession(ctx: Context, id: Session['id']): Promise<Session> {
  const session = await findSession(ctx.db, id);
  if (session === undefined) throw noSuchSession(id);
  if (session.endedAt !== null) throw sessionEnded(session);
  return session;
}

async function look(
  ctx: Context,
  session: Session,
): Promise<{ readonly found: Found; readonly sandbox?: SandboxView }> {
  const { org, sandboxId } = session;
  if (sandboxId === null) return { found: { is: 'none' } };
  try {
    const sandbox = await ctx.engine.get(org, sandboxId);
    // Its files are where this server cannot get at them. Somebody decides whether they are left behind.
    if (!isTerminal(sandbox.state)) requireRuntime(ctx, session, sandbox.runtime);
    return { found: { is: 'sandbox', state: sandbox.state, evidence: sandbox.evidence }, sandbox };
  } catch (thrown) {
    if (thrown instanceof TorporError && thrown.code === 'not_found') return { found: { is: 'absent' } };
    throw thrown;
  }
}

/** Falls back as far as the sandbox's own files go; beyond that, it is replaced. */
const FALLBACK = ['files', 'previous'] as const;

async function attempt(ctx: Context, session: Session, act: 'resume' | 'repair', signal: AbortSignal) {
  const { org, sandboxId } = session;
  if (sandboxId === null) return undefined;
  try {
    if (act === 'repair') {
      const { state } = await ctx.engine.compareOne(org, sandboxId);
      // Another operation may have been in the way of it.
      if (state === 'running') await ctx.clock.sleep(ctx.settings.lookAgainMs, signal);
      return undefined;
    }
    const { lost, resumed, source, sandbox } = await resumeSurely(ctx, org, sandboxId, signal);
    if (resumed) await noteRun(ctx, session, sandbox, { did: 'resumed', lost, source });
    return undefined;
  } catch (thrown) {
    signal.throwIfAborted();
    return { of: sandboxId, error: TorporError.from(thrown) };
  }
}

/** A resume that did nothing may have been an accident; one that does nothing twice does not work (R70). */
async function resumeSurely({ engine }: Context, org: string, id: SandboxId, signal: AbortSignal) {
  const resume = () => engine.resume({ org, signal }, id, { fallback: [...FALLBACK] });
  try {
    return await resume();
  } catch (thrown) {
    if (!didNothing(thrown)) throw thrown;
  }
  try {
    return await resume();
  } catch (thrown) {
    if (!didNothing(thrown)) throw thrown;
    throw new TorporError(thrown.code, thrown.message, { sandboxId: id, retryable: false, cause: thrown });
  }
}

function didNothing(thrown: unknown): thrown is TorporError {
  return thrown instanceof TorporError && thrown.toBody().details?.['seen'] === 'gone';
}

/** The session as it is once it is known whether the sandbox that it is bound to has the files of its last turn. */
async function withItsFiles(ctx: Context, session: Session, sandbox: SandboxView): Promise<Session> {
  // The loss is known already: the next turn is told the history.
  if (session.historyDue || (await sandboxHoldsLastTurn(ctx, session, sandbox))) return session;
  await noteRun(ctx, session, sandbox, { did: 'used', lost: ['files'], source: null });
  return (await findSession(ctx.db, session.id)) ?? session;
}

/** The sandbox of the session runs, woken by us or found so, perhaps with older files than the last turn left. */
async function noteRun(
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
  await ctx.db.transaction((tx) => noteResumed(tx, session, { change, source }, ctx.settings.wakesKept));
}

async function plan(
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
  // What can perhaps still be started is not ended because we could not start it.
  const retire = formerId !== null && !isEmpty && (from !== null || failure === undefined);
  const decided: Plan = { at: ctx.clock.now(), from, why, message, formerId, retire };
  await ctx.db.transaction((tx) => writePlan(tx, session, decided));
  await ctx.pass('session.planned');
}

/** Makes the planned sandbox and binds it. Undefined when somebody else was first, or another plan was written. */
async function carryOut(
  ctx: Context,
  session: Session,
  planned: Plan,
  signal: AbortSignal,
): Promise<Bound | Failure | undefined> {
  const { org } = session;
  const idempotencyKey = `${session.id}.${session.spawns}`;
  let sandbox: SandboxView;
  try {
    sandbox = (await ctx.engine.create({ org, signal, idempotencyKey }, requestOf(session, planned))).sandbox;
  } catch (thrown) {
    // Only our own bound says something about the start; whoever hung up does not.
    const isLate = signal.reason instanceof TorporError && signal.reason.code === 'timeout';
    if (signal.aborted && !isLate) throw signal.reason;
    const failed = isLate ? signal.reason : TorporError.from(thrown);
    return couldNotMake(ctx, session, planned, failed);
  }
  await ctx.pass('session.spawned');
  const binding = await bindingOf(ctx, session, planned, sandbox);
  const isBound = await ctx.db.transaction(async (tx) => {
    const won = await bind(tx, session, binding, ctx.settings.wakesKept);
    const now = won ? undefined : await findSession(tx, session.id);
    // A twin of ours has bound this very one; anybody else has no use for it.
    if (now !== undefined && isUnwanted(now, sandbox.id)) await addLeftover(tx, session, sandbox.id);
    if (won && planned.retire && planned.formerId !== null) await addLeftover(tx, session, planned.formerId);
    return won;
  });
  if (!isBound) return undefined;
  await ctx.pass('session.bound');
  const now = await findSession(ctx.db, session.id);
  return now === undefined ? undefined : { session: now, sandbox };
}

function isUnwanted({ endedAt, sandboxId, change }: Session, id: SandboxId): boolean {
  return endedAt !== null || (sandboxId !== id && change?.formerSandboxId !== id);
}

/**
 * A failure that passes leaves the plan for the next try. After one for good it is tried without the files, and when
 * that was it, the next decision is made anew.
 */
async function couldNotMake(
  ctx: Context,
  session: Session,
  planned: Plan,
  failed: TorporError,
): Promise<Failure | undefined> {
  if (isPassing(failed)) return { error: failed, at: 'spawn' };
  if (planned.from !== null) {
    ctx.report('a session could not start from its last files', { sessionId: session.id, error: failed });
    const without: Plan = { ...planned, from: null, retire: false };
    await ctx.db.transaction((tx) => replacePlan(tx, session, without));
    return undefined;
  }
  if (planned.why === 'request') {
    await ctx.db.transaction((tx) => replacePlan(tx, session, null));
    return { error: noRuntimeFor(ctx, session, planned.runtime) ?? failed, at: 'request' };
  }
  await ctx.db.transaction((tx) => markSpecFailed(tx, session));
  return { error: noRuntimeFor(ctx, session, session.spec.sandbox.runtime) ?? failed, at: 'spawn' };
}

/** No turn is claimed while a sandbox is planned, so the last one that there is now is the last when it is bound. */
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

/** What a new sandbox was really started from; its first start stands near the beginning of its ledger. */
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

function cannotBeAsked({ sandboxId }: Session): TorporError {
  return new TorporError('unreachable', 'The runtime could not say how the sandbox of the session is.', {
    ...(sandboxId === null ? {} : { sandboxId }),
  });
}

/** Within its bound, with what went wrong written down where people look, and taken away when it is over. */
export async function spawnWithin(ctx: Context, id: Session['id'], parent?: AbortSignal): Promise<Bound> {
  const timer = new AbortController();
  const late = new TorporError('timeout', `There was no sandbox within ${ctx.settings.spawnMs} ms.`);
  const bound = new AbortController();
  ctx.clock.sleep(ctx.settings.spawnMs, timer.signal).then(
    () => bound.abort(late),
    () => {},
  );
  const signals = [bound.signal, ctx.stopping, ...(parent === undefined ? [] : [parent])];
  const got = await getOrSpawn(ctx, id, AbortSignal.any(signals))
    .catch((thrown: unknown): Failure => ({ error: TorporError.from(thrown), at: 'wake' }))
    .finally(() => timer.abort());
  if ('error' in got) {
    if (ctx.stopping.aborted || parent?.aborted === true) throw got.error;
    throw await noteFailure(ctx, id, got);
  }
  const { error, specFailed } = got.session;
  if (error !== null || specFailed) await ctx.db.transaction((tx) => clearError(tx, id, ctx.clock.now()));
  return { ...got, session: { ...got.session, error: null } };
}

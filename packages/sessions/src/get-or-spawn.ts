/**
 * getOrSpawn: whatever became of the sandbox of a session, there is one that runs afterwards, or an error that
 * passes. However many ask at once, on however many servers, one sandbox is made: a decision to make one is
 * written before it is acted on, under the number of the session's next sandbox, and that number is also the
 * idempotency key of the engine's create. So whoever comes second, or after a crash, gets the one that was made.
 */
import type { CheckpointId, CreateRequest, Loss, SandboxView, SessionChange } from '@torpor/protocol';
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { Context } from './context.ts';
import { decide, type Found, isPassing } from './decide.ts';
import { lastFiles } from './last-files.ts';
import {
  addLeftover,
  bind,
  findSession,
  noSuchSession,
  noteResumed,
  type Plan,
  replacePlan,
  type Session,
  sessionEnded,
  setError,
  writePlan,
} from './session.ts';

export interface Bound {
  readonly session: Session;
  readonly sandbox: SandboxView;
}

/** Which session a sandbox was made for, so that what a crash left of one that ended can be found. */
export const SESSION_LABEL = 'torpor.session';

async function getOrSpawn(ctx: Context, id: Session['id'], signal: AbortSignal): Promise<Bound> {
  let failure: { readonly of: SandboxId | null; readonly error: TorporError } | undefined;
  for (;;) {
    signal.throwIfAborted();
    const session = await openSession(ctx, id);
    if (session.plan !== null) {
      const bound = await carryOut(ctx, session, session.plan, signal);
      if (bound !== undefined) return bound;
      continue;
    }
    const { found, sandbox } = await look(ctx, session);
    const last = failure?.of === session.sandboxId ? failure?.error : undefined;
    const decision = decide(found, last);
    switch (decision.act) {
      case 'use':
        if (sandbox !== undefined) return { session, sandbox };
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
  { engine }: Context,
  { org, sandboxId }: Session,
): Promise<{ readonly found: Found; readonly sandbox?: SandboxView }> {
  if (sandboxId === null) return { found: { is: 'none' } };
  try {
    const sandbox = await engine.get(org, sandboxId);
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
    const { lost, resumed } = await resumeSurely(ctx, org, sandboxId, signal);
    if (resumed) await ctx.db.transaction((tx) => noteResumed(tx, session, resumedWith(ctx, lost)));
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

function resumedWith({ clock }: Context, lost: Loss[]): SessionChange {
  const threadKept = !lost.includes('files');
  const why = lost.length === 0 ? null : `lost ${lost.join(', ')}`;
  const about = { at: clock.now(), why, message: null, formerSandboxId: null, from: null };
  return { did: 'resumed', ...about, lost, threadKept };
}

async function plan(
  ctx: Context,
  session: Session,
  found: string,
  failure: TorporError | undefined,
): Promise<void> {
  const formerId = session.sandboxId ?? session.formerId;
  const healed = found === 'first' ? session.change : null;
  const isEmpty = healed?.did === 'healed' && !healed.threadKept;
  const from = isEmpty ? null : await lastFiles(ctx, session.org, formerId);
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
): Promise<Bound | undefined> {
  const { org } = session;
  const idempotencyKey = `${session.id}.${session.spawns}`;
  let sandbox: SandboxView;
  try {
    sandbox = await ctx.engine.create({ org, signal, idempotencyKey }, requestOf(session, planned));
  } catch (thrown) {
    signal.throwIfAborted();
    const error = TorporError.from(thrown);
    if (!isPassing(error)) await planNext(ctx, session, planned);
    if (isPassing(error) || planned.from === null) throw error;
    ctx.report('a session could not start from its last files', { sessionId: session.id, error });
    return undefined;
  }
  await ctx.pass('session.spawned');
  const isBound = await ctx.db.transaction(async (tx) => {
    const binding = { sandboxId: sandbox.id, ...bindingOf(ctx, session, planned) };
    const won = await bind(tx, session, binding);
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

/** After a failure for good: without the files, or, when that was tried too, whatever is decided next time. */
async function planNext(ctx: Context, session: Session, failed: Plan): Promise<void> {
  const next: Plan | null = failed.from === null ? null : { ...failed, from: null, retire: false };
  await ctx.db.transaction((tx) => replacePlan(tx, session, next));
}

function bindingOf({ clock }: Context, session: Session, { from, why, message, formerId }: Plan) {
  const isFirst = formerId === null && session.change === null;
  const threadKept = from !== null || isFirst;
  const lost: Loss[] = isFirst ? [] : from === null ? ['processes', 'files'] : ['processes'];
  const about = { at: clock.now(), why, message, formerSandboxId: formerId, from, lost, threadKept };
  return { change: { did: 'spawned', ...about } as const, historyDue: !threadKept };
}

function requestOf({ id, spec }: Session, { from }: Plan): CreateRequest {
  const { template, from: specFrom, metadata, ...rest } = spec.sandbox;
  return { ...rest, ...sourceOf(from, template, specFrom), metadata: { ...metadata, [SESSION_LABEL]: id } };
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
  try {
    const got = await getOrSpawn(ctx, id, AbortSignal.any(signals));
    if (got.session.error !== null) await ctx.db.transaction((tx) => setError(tx, id, null));
    return { ...got, session: { ...got.session, error: null } };
  } catch (thrown) {
    const error = TorporError.from(thrown);
    if (!ctx.stopping.aborted && parent?.aborted !== true)
      await ctx.db.transaction((tx) => setError(tx, id, error.toBody()));
    throw error;
  } finally {
    timer.abort();
  }
}

/** Changes of a session on request: another sandbox, or the end of the session. */
import { isTerminal, type SandboxId, type SessionChange, TorporError } from '@torpor/protocol';
import { CHANNEL, type Context } from './context.ts';
import { lastFiles, timeOfFiles } from './last-files.ts';
import { sandboxHoldsLastTurn } from './lineage.ts';
import {
  addLeftover,
  bind,
  findSession,
  lockSession,
  type Plan,
  replacePlan,
  type Session,
  sessionEnded,
} from './session.ts';
import { requireRuntime } from './session-runtime.ts';
import { endOpenTurns, lastClaimedTurn } from './turn.ts';

/**
 * Plans a new sandbox from the session's last files, if there are any. The former sandbox is kept, paused or running: the
 * user may want to look into it. `runtime` moves the session to that runtime; files of another runtime stay behind.
 */
export async function planNewSandbox(ctx: Context, session: Session, runtime?: string): Promise<void> {
  if (session.endedAt !== null) throw sessionEnded(session);
  if (runtime !== undefined) requireRuntime(ctx, session, runtime);
  const formerId = session.sandboxId ?? session.formerId;
  const from = await lastFiles(ctx, session.org, formerId, runtime ?? session.spec.sandbox.runtime);
  const message = runtime === undefined ? null : `Moved to the runtime "${runtime}".`;
  const plan: Plan = {
    at: ctx.clock.now(),
    from,
    why: 'request',
    message,
    formerId,
    retire: false,
    ...(runtime === undefined ? {} : { runtime }),
  };
  // Replaces a plan that is waiting: a sandbox that is still being created for that plan will not be bound.
  const isPlanned = await ctx.db.transaction((tx) => replacePlan(tx, session, plan));
  if (!isPlanned) throw sessionChanged();
}

export async function rebindTo(ctx: Context, session: Session, sandboxId: SandboxId): Promise<void> {
  if (session.endedAt !== null) throw sessionEnded(session);
  const sandbox = await ctx.engine.get(session.org, sandboxId);
  if (isTerminal(sandbox.state)) {
    throw new TorporError('conflict', `The sandbox is ${sandbox.state}: a session cannot continue in it.`, {
      sandboxId,
    });
  }
  if (session.sandboxId === sandboxId) return;
  const turn = await lastClaimedTurn(ctx.db, session.id);
  const isOwn = turn?.sandboxId === sandboxId;
  const isFirst = session.change === null;
  const hasItsFiles = isFirst || (isOwn && (await sandboxHoldsLastTurn(ctx, session, sandbox)));
  const change: SessionChange = {
    did: 'rebound',
    at: ctx.clock.now(),
    why: 'request',
    message: null,
    formerSandboxId: session.sandboxId,
    from: null,
    lost: hasItsFiles ? [] : ['processes', 'files'],
    // A sandbox that never had a turn of the session has no files of the session.
    lostSince: hasItsFiles ? null : await timeOfFiles(ctx, session, isOwn ? sandbox.baseId : null),
    threadKept: hasItsFiles,
  };
  const isBound = await ctx.db.transaction(async (tx) => {
    await lockSession(tx, session.id);
    // A turn that was sent to the old sandbox meanwhile left its files there.
    if ((await lastClaimedTurn(tx, session.id))?.id !== turn?.id) return false;
    return bind(tx, session, { sandboxId, change, source: null }, ctx.settings.wakesKept);
  });
  if (!isBound) throw sessionChanged();
}

function sessionChanged(): TorporError {
  return new TorporError('transitioning', 'The session got another sandbox or a turn meanwhile.', {
    hint: 'Read the session, and try again.',
  });
}

export async function endSession(ctx: Context, session: Session): Promise<void> {
  const error = sessionEnded(session).toBody();
  await ctx.db.transaction(async (tx) => {
    await tx.query('SELECT id FROM sessions WHERE id = $1 {FOR UPDATE}', [session.id]);
    const now = await findSession(tx, session.id);
    if (now === undefined || now.endedAt !== null) return;
    await tx.query('UPDATE sessions SET ended_at = $2, error = NULL WHERE id = $1', [
      session.id,
      ctx.clock.now(),
    ]);
    if (now.sandboxId !== null) await addLeftover(tx, now, now.sandboxId);
    await endOpenTurns(tx, session.id, error, ctx.clock.now());
    tx.notify(CHANNEL);
  });
  const { sandboxId, org } = session;
  if (sandboxId === null) return;
  // Killed at once if possible; otherwise the reconciler kills it later.
  await ctx.engine
    .kill({ org }, sandboxId)
    .then(() =>
      ctx.db.transaction((tx) =>
        tx.query('DELETE FROM session_leftovers WHERE sandbox_id = $1', [sandboxId]),
      ),
    )
    .catch((thrown: unknown) =>
      ctx.report('the sandbox of an ended session could not be killed yet', { sandboxId, error: thrown }),
    );
}

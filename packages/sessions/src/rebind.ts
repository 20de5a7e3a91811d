/** Changes of a session that somebody asked for: another sandbox, or none any more. */
import { isTerminal, type SandboxId, TorporError } from '@torpor/protocol';
import { CHANNEL, type Context } from './context.ts';
import { lastFiles } from './last-files.ts';
import { addLeftover, bind, findSession, type Session, sessionEnded, writePlan } from './session.ts';
import { endOpenTurns } from './turn.ts';

/** From its last files where there are any. What it had is kept asleep or running: somebody may want to look at it. */
export async function spawnAnew(ctx: Context, session: Session): Promise<void> {
  if (session.endedAt !== null) throw sessionEnded(session);
  const formerId = session.sandboxId ?? session.formerId;
  const from = await lastFiles(ctx, session.org, formerId);
  const about = { why: 'request', message: null, formerId, retire: false };
  await ctx.db.transaction((tx) => writePlan(tx, session, { at: ctx.clock.now(), from, ...about }));
}

export async function rebindTo(ctx: Context, session: Session, sandboxId: SandboxId): Promise<void> {
  if (session.endedAt !== null) throw sessionEnded(session);
  const { state } = await ctx.engine.get(session.org, sandboxId);
  if (isTerminal(state)) {
    throw new TorporError('conflict', `The sandbox is ${state}: a session cannot go on in it.`, {
      sandboxId,
    });
  }
  if (session.sandboxId === sandboxId) return;
  const change = {
    did: 'rebound',
    at: ctx.clock.now(),
    why: 'request',
    message: null,
    formerSandboxId: session.sandboxId,
    from: null,
    lost: ['processes', 'files'],
    // Whatever thread the program had, its files are elsewhere.
    threadKept: false,
  } as const;
  const done = await ctx.db.transaction((tx) =>
    bind(tx, session, { sandboxId, historyDue: true, change: { ...change, lost: [...change.lost] } }),
  );
  if (!done) throw new TorporError('transitioning', 'The session was bound to another sandbox meanwhile.');
}

export async function end(ctx: Context, session: Session): Promise<void> {
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
  // At once where it can be; what is left of it is ended by the round.
  await ctx.engine
    .kill({ org }, sandboxId)
    .then(() =>
      ctx.db.transaction((tx) =>
        tx.query('DELETE FROM session_leftovers WHERE sandbox_id = $1', [sandboxId]),
      ),
    )
    .catch((thrown: unknown) =>
      ctx.report('the sandbox of an ended session is left', { sandboxId, error: thrown }),
    );
}

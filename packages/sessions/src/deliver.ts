/**
 * Delivers one turn to the program and stores its answer. The order of the steps makes the delivery happen once: the
 * destination is recorded before the turn is sent, the agent records the turn's id before the program gets the turn, and a
 * repeated delivery with the same id gets the recorded answer.
 */
import { withTimeout } from '@torpor/engine';
import { isTerminal, TorporError } from '@torpor/protocol';
import type { Context } from './context.ts';
import { isTransient } from './decide.ts';
import { errorOfWaitingTurn } from './failed-wake.ts';
import { type BoundSession, getOrSpawn } from './get-or-spawn.ts';
import { hasFilesOfClaim } from './lineage.ts';
import { historyBefore } from './output.ts';
import { findSession, type Session } from './session.ts';
import { storeAnswer } from './store-answer.ts';
import { claimTurn, endTurn, markAnswering, postpone, type Turn, type TurnEnd } from './turn.ts';
import type { TurnMessage } from './turn-port.ts';

/** A sandbox that was paused while it answered is not resumed by a round; the turn is tried again after this long. */
const PAUSED_RETRY_MS = 30_000;

/**
 * Advances the turn as far as possible. Returns whether to continue with the session's next turn at once. With `mayWake`, a
 * caller asked for the session: a sandbox that was paused while it answered is then resumed.
 */
export async function advanceTurn(ctx: Context, turn: Turn, mayWake: boolean): Promise<boolean> {
  try {
    if (turn.state === 'answering') return await continueAnswer(ctx, turn, mayWake);
    const bound = await getOrSpawn(ctx, turn.sessionId);
    const releaseLease = ctx.engine.leases.hold(bound.sandbox.id);
    try {
      return await deliver(ctx, bound, turn);
    } finally {
      releaseLease();
    }
  } catch (thrown) {
    // The next start of the server continues the turn.
    if (ctx.stopping.aborted) return false;
    return await retryLater(ctx, turn, TorporError.from(thrown));
  }
}

async function deliver(ctx: Context, { session, sandbox }: BoundSession, turn: Turn): Promise<boolean> {
  if (turn.state === 'delivering' && !(await hasFilesOfClaim(ctx, turn, sandbox))) {
    await end(
      ctx,
      turn,
      deliveryUnknown('The sandbox that it was being delivered to has been replaced or rolled back since.'),
    );
    return true;
  }
  if (turn.state === 'waiting') {
    const isOurs = await ctx.db.transaction((tx) => claimTurn(tx, turn, sandbox.id, sandbox.generation));
    // The session or its sandbox has changed since it was read.
    if (!isOurs) return true;
  }
  await ctx.atFaultPoint('session.claimed');
  const message = await messageOf(ctx, session, turn);
  const receipt = await withTimeout(
    ctx.clock,
    ctx.settings.deliverMs,
    'Delivering',
    (signal) => ctx.turnPort.deliver(session.org, sandbox.id, message, signal),
    ctx.stopping,
  ).catch((thrown: unknown) => {
    const error = TorporError.from(thrown);
    if (isTransient(error) || error.code === 'internal') throw error;
    return { is: 'refused' as const, error };
  });
  await ctx.atFaultPoint('session.delivered');
  if (receipt.is === 'refused') {
    await end(ctx, turn, { state: 'failed', exitCode: null, error: receipt.error.toBody() });
    return true;
  }
  if (receipt.is === 'unknown') {
    await end(ctx, turn, deliveryUnknown(receipt.why));
    return true;
  }
  const { tag, offset } = receipt;
  const answering = { sandboxId: sandbox.id, tag, offset, toldHistory: message.history !== null };
  await ctx.db.transaction((tx) => markAnswering(tx, turn, answering, ctx.clock.now()));
  await ctx.atFaultPoint('session.written');
  await storeAnswer(ctx, session, { ...turn, sandboxId: sandbox.id, tag, outputEnd: offset });
  return true;
}

async function messageOf(ctx: Context, session: Session, turn: Turn): Promise<TurnMessage> {
  const limits = { turns: ctx.settings.historyTurns, bytes: ctx.settings.historyBytes };
  return {
    id: turn.id,
    sessionKey: session.key,
    program: session.spec.program,
    input: turn.input,
    agentThreadId: session.agentThreadId,
    history: session.historyDue ? await historyBefore(ctx.db, session.id, turn.seq, limits) : null,
  };
}

async function continueAnswer(ctx: Context, turn: Turn, mayWake: boolean): Promise<boolean> {
  const session = await findSession(ctx.db, turn.sessionId);
  const { sandboxId } = turn;
  if (session === undefined || sandboxId === null) return false;
  const sandbox = await ctx.engine.get(session.org, sandboxId).catch((thrown: unknown) => {
    if (thrown instanceof TorporError && thrown.code === 'not_found') return undefined;
    throw thrown;
  });
  if (sandbox === undefined || isTerminal(sandbox.state) || session.sandboxId !== sandboxId) {
    const error = new TorporError('lost', 'The sandbox ended before the turn was answered.', { sandboxId });
    await end(ctx, turn, { state: 'failed', exitCode: null, error: error.toBody() });
    return true;
  }
  if (sandbox.state !== 'running') {
    if (!mayWake) {
      await ctx.db.transaction((tx) => postpone(tx, turn.id, null, ctx.clock.now() + PAUSED_RETRY_MS));
      return false;
    }
    await getOrSpawn(ctx, session.id);
  }
  const releaseLease = ctx.engine.leases.hold(sandboxId);
  try {
    await storeAnswer(ctx, session, turn);
  } finally {
    releaseLease();
  }
  return true;
}

async function retryLater(ctx: Context, turn: Turn, error: TorporError): Promise<boolean> {
  const { clock, settings } = ctx;
  const shown = errorOfWaitingTurn(turn.error, error);
  if (clock.now() - turn.createdAt > settings.giveUpMs && turn.state !== 'answering') {
    const state = turn.state === 'delivering' ? 'unknown' : 'failed';
    await end(ctx, turn, { state, exitCode: null, error: shown });
    return true;
  }
  const wait = Math.min(settings.firstRetryMs * 2 ** Math.min(turn.tries, 20), settings.longestRetryMs);
  await ctx.db.transaction((tx) => postpone(tx, turn.id, shown, clock.now() + wait));
  ctx.report('a turn has to wait', { sessionId: turn.sessionId, turnId: turn.id, error });
  return false;
}

function deliveryUnknown(why: string): TurnEnd {
  const error = new TorporError('no_answer', `Whether the program got this turn cannot be known: ${why}`, {
    retryable: false,
    hint: 'Check what the program has done, and send the turn again if it has not acted on it.',
  });
  return { state: 'unknown', exitCode: null, error: error.toBody() };
}

async function end(ctx: Context, turn: Turn, how: TurnEnd): Promise<void> {
  await ctx.db.transaction((tx) => endTurn(tx, turn.id, how, ctx.clock.now()));
}

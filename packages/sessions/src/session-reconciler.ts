/**
 * Sessions whose sandbox died heal by themselves, so that the next message finds the way clear. Each round looks
 * at a bounded number of rows, goes on where the last one stopped, and is not stopped by one bad row. Nothing is
 * started for it: a sandbox is made when there is something to say.
 */
import type { Queryable } from '@torpor/engine';
import { type Healing, isTerminal, type SandboxId, type SessionChange, TorporError } from '@torpor/protocol';
import { CHANNEL, type Context } from './context.ts';
import { getOrSpawn, SESSION_LABEL } from './get-or-spawn.ts';
import { lastFiles, timeOfFiles } from './last-files.ts';
import { checkpointHoldsLastTurn } from './lineage.ts';
import { addLeftover, replacePlan, SESSION_COLUMNS, type Session, toSession, unbind } from './session.ts';
import { missingRuntime } from './session-runtime.ts';

export class SessionReconciler {
  readonly #ctx: Context;
  #healed = 0;
  #failed = 0;
  /** Where the next round begins; lost with the process, which then begins anew. */
  #deadCursor = '';
  #pausedCursor = '';
  #nextPausedCheckAt = 0;

  constructor(ctx: Context) {
    this.#ctx = ctx;
  }

  async round(): Promise<void> {
    const { db, settings } = this.#ctx;
    const most = settings.healedAtOnce;
    const dead = await listDead(db, this.#deadCursor, most);
    for (const session of dead) await this.#countingFailures(session, () => this.#unbindDead(session));
    this.#deadCursor = dead.length < most ? '' : (dead.at(-1)?.id ?? '');
    await this.#checkPausedSandboxes();
    for (const session of await listPlanned(db, most))
      await this.#countingFailures(session, () => this.#finishPlan(session));
    await this.#killLeftovers(most);
  }

  async report(): Promise<Healing> {
    const { db, settings } = this.#ctx;
    const { healedAtOnce: perRound, healEveryMs: everyMs } = settings;
    const due = await countDead(db);
    const leftovers = await countLeftovers(db);
    return { due, healed: this.#healed, failed: this.#failed, leftovers, perRound, everyMs };
  }

  async #unbindDead(session: Session): Promise<void> {
    const ctx = this.#ctx;
    const { org, sandboxId } = session;
    if (sandboxId === null) return;
    const sandbox = await ctx.engine.get(org, sandboxId).catch(undefinedIfNotFound);
    if (sandbox !== undefined && !isTerminal(sandbox.state)) return;
    // Its files may be there for a server that has the runtime; nothing is given up for lack of it.
    if (missingRuntime(ctx, session, sandbox?.runtime) !== undefined) return;
    const why = sandbox?.state ?? 'not_found';
    const message = sandbox?.reason ?? `The sandbox ${sandboxId} is not there.`;
    const from = await lastFiles(ctx, org, sandboxId, session.spec.sandbox.runtime);
    const threadKept = from !== null && (await checkpointHoldsLastTurn(ctx, session, sandboxId, from));
    await this.#unbindSandbox(session, { why, message, from, threadKept });
  }

  /** Looking at a checkpoint costs a disk's time: a few in a round, and a rest when all have been looked at. */
  async #checkPausedSandboxes(): Promise<void> {
    const { db, settings, clock } = this.#ctx;
    if (clock.monotonic() < this.#nextPausedCheckAt) return;
    const asleep = await listPaused(db, this.#pausedCursor, settings.sleepersAtOnce);
    for (const session of asleep)
      await this.#countingFailures(session, () => this.#checkPausedSandbox(session));
    const isLast = asleep.length < settings.sleepersAtOnce;
    this.#pausedCursor = isLast ? '' : (asleep.at(-1)?.id ?? '');
    if (isLast) this.#nextPausedCheckAt = clock.monotonic() + settings.sleepersRestMs;
  }

  /** One that sleeps and of which nothing can be started any more is not ended: its files may be put back. */
  async #checkPausedSandbox(session: Session): Promise<void> {
    const { org, sandboxId } = session;
    if (sandboxId === null || (await this.#ctx.engine.isStartable(org, sandboxId))) return;
    const message = `Nothing is left that ${sandboxId} could be started from.`;
    await this.#unbindSandbox(session, { why: 'checkpoint_missing', message, from: null, threadKept: false });
  }

  async #unbindSandbox(
    session: Session,
    about: Pick<SessionChange, 'why' | 'message' | 'from' | 'threadKept'>,
  ): Promise<void> {
    const ctx = this.#ctx;
    const change: SessionChange = {
      did: 'healed',
      at: ctx.clock.now(),
      formerSandboxId: session.sandboxId,
      lost: about.threadKept ? ['processes'] : ['processes', 'files'],
      lostSince: about.threadKept ? null : await timeOfFiles(ctx, session, about.from),
      ...about,
    };
    const done = await ctx.db.transaction(async (tx) => {
      tx.notify(CHANNEL);
      return unbind(tx, session, change, ctx.settings.wakesKept);
    });
    if (done) this.#healed++;
  }

  /** A crash between the decision and the binding: what was begun is brought to its end. */
  async #finishPlan(session: Session): Promise<void> {
    const ctx = this.#ctx;
    // Whoever decided on it may still be at it.
    if (ctx.clock.now() - (session.plan?.at ?? 0) < ctx.settings.spawnMs) return;
    const filter = { org: session.org, metadata: { [SESSION_LABEL]: session.id } };
    const { items } = await ctx.engine.list(filter, '', 100);
    const { sandboxId, plan } = session;
    const made = items.filter(
      ({ id, state }) => id !== sandboxId && id !== plan?.formerId && !isTerminal(state),
    );
    if (session.endedAt === null && made.length > 0) {
      await getOrSpawn(ctx, session.id);
      return;
    }
    await ctx.db.transaction(async (tx) => {
      for (const { id } of made) await addLeftover(tx, session, id);
      await replacePlan(tx, session, null);
    });
  }

  /** A sandbox that could not be ended is tried again next time; its row stays until it is (R81). */
  async #killLeftovers(most: number): Promise<void> {
    const { engine, db, report } = this.#ctx;
    const rows = await db.query<{ sandbox_id: SandboxId; org: string }>(
      'SELECT sandbox_id, org FROM session_leftovers ORDER BY sandbox_id LIMIT $1',
      [most],
    );
    for (const { sandbox_id: id, org } of rows) {
      try {
        await engine.kill({ org, signal: this.#ctx.stopping }, id).catch(undefinedIfNotFound);
        await db.transaction((tx) => tx.query('DELETE FROM session_leftovers WHERE sandbox_id = $1', [id]));
      } catch (error) {
        report('a replaced sandbox could not be ended', { sandboxId: id, error });
      }
    }
  }

  async #countingFailures(session: Session, work: () => Promise<void>): Promise<void> {
    if (this.#ctx.stopping.aborted) return;
    try {
      await work();
    } catch (error) {
      this.#failed++;
      this.#ctx.report('healing a session failed', { sessionId: session.id, error });
    }
  }
}

function undefinedIfNotFound(thrown: unknown): undefined {
  if (thrown instanceof TorporError && thrown.code === 'not_found') return undefined;
  throw thrown;
}

const DEAD = `FROM sessions s LEFT JOIN sandboxes b ON b.id = s.sandbox_id
  WHERE s.sandbox_id IS NOT NULL AND s.ended_at IS NULL AND s.plan IS NULL
    AND (b.id IS NULL OR b.state IN ('killed', 'failed', 'lost'))`;

async function listDead(db: Queryable, after: string, limit: number): Promise<Session[]> {
  const rows = await db.query(`SELECT ${SESSION_COLUMNS} ${DEAD} AND s.id > $1 ORDER BY s.id LIMIT $2`, [
    after,
    limit,
  ]);
  return rows.map(toSession);
}

async function countDead(db: Queryable): Promise<number> {
  const [row] = await db.query<{ count: number }>(`SELECT COUNT(*) AS count ${DEAD}`);
  return Number(row?.count ?? 0);
}

async function countLeftovers(db: Queryable): Promise<number> {
  const [row] = await db.query<{ count: number }>('SELECT COUNT(*) AS count FROM session_leftovers');
  return Number(row?.count ?? 0);
}

async function listPaused(db: Queryable, after: string, limit: number): Promise<Session[]> {
  const rows = await db.query(
    `SELECT ${SESSION_COLUMNS} FROM sessions s JOIN sandboxes b ON b.id = s.sandbox_id
     WHERE s.sandbox_id IS NOT NULL AND s.ended_at IS NULL AND s.plan IS NULL AND b.state = 'paused' AND s.id > $1
     ORDER BY s.id LIMIT $2`,
    [after, limit],
  );
  return rows.map(toSession);
}

async function listPlanned(db: Queryable, limit: number): Promise<Session[]> {
  const rows = await db.query(
    `SELECT ${SESSION_COLUMNS} FROM sessions s WHERE s.plan IS NOT NULL ORDER BY s.id LIMIT $1`,
    [limit],
  );
  return rows.map(toSession);
}

/**
 * Unbinds sessions from sandboxes that have ended, so that the next turn gets a new sandbox at once. Each round reads a
 * bounded number of rows, continues where the last round stopped, and is not stopped by one failing row. A round creates
 * no sandboxes: a sandbox is created when there is a turn to deliver.
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
  /** Where the next round begins. After a restart the server begins anew. */
  #deadCursor = '';
  #pausedCursor = '';
  #nextPausedCheckAt = 0;

  constructor(ctx: Context) {
    this.#ctx = ctx;
  }

  async round(): Promise<void> {
    const { db, settings } = this.#ctx;
    const limit = settings.healedAtOnce;
    const dead = await listDead(db, this.#deadCursor, limit);
    for (const session of dead) await this.#countingFailures(session, () => this.#unbindDead(session));
    this.#deadCursor = dead.length < limit ? '' : (dead.at(-1)?.id ?? '');
    await this.#checkPausedSandboxes();
    for (const session of await listPlanned(db, limit))
      await this.#countingFailures(session, () => this.#finishPlan(session));
    await this.#killLeftovers(limit);
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
    // A server that has the runtime may still have the files, so nothing is unbound without the runtime.
    if (missingRuntime(ctx, session, sandbox?.runtime) !== undefined) return;
    const why = sandbox?.state ?? 'not_found';
    const message = sandbox?.reason ?? `The sandbox ${sandboxId} does not exist.`;
    const from = await lastFiles(ctx, org, sandboxId, session.spec.sandbox.runtime);
    const threadKept = from !== null && (await checkpointHoldsLastTurn(ctx, session, sandboxId, from));
    await this.#unbindSandbox(session, { why, message, from, threadKept });
  }

  /** Inspecting a checkpoint costs disk time: a few in each round, and a pause after all were inspected. */
  async #checkPausedSandboxes(): Promise<void> {
    const { db, settings, clock } = this.#ctx;
    if (clock.monotonic() < this.#nextPausedCheckAt) return;
    const paused = await listPaused(db, this.#pausedCursor, settings.sleepersAtOnce);
    for (const session of paused)
      await this.#countingFailures(session, () => this.#checkPausedSandbox(session));
    const isLast = paused.length < settings.sleepersAtOnce;
    this.#pausedCursor = isLast ? '' : (paused.at(-1)?.id ?? '');
    if (isLast) this.#nextPausedCheckAt = clock.monotonic() + settings.sleepersRestMs;
  }

  /** Unbinds a paused sandbox that cannot be started any more, but does not kill it: its files may be restored. */
  async #checkPausedSandbox(session: Session): Promise<void> {
    const { org, sandboxId } = session;
    if (sandboxId === null || (await this.#ctx.engine.hasUsableCheckpoint(org, sandboxId))) return;
    const message = `No checkpoint is left that ${sandboxId} could be started from.`;
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

  /** After a crash between the plan and the binding: finishes the plan, or drops it. */
  async #finishPlan(session: Session): Promise<void> {
    const ctx = this.#ctx;
    // The server that wrote the plan may still be at work.
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

  /** Kills replaced sandboxes. When a kill fails, the row stays and the next round tries again (R81). */
  async #killLeftovers(limit: number): Promise<void> {
    const { engine, db, report } = this.#ctx;
    const rows = await db.query<{ sandbox_id: SandboxId; org: string }>(
      'SELECT sandbox_id, org FROM session_leftovers ORDER BY sandbox_id LIMIT $1',
      [limit],
    );
    for (const { sandbox_id: id, org } of rows) {
      try {
        await engine.kill({ org, signal: this.#ctx.stopping }, id).catch(undefinedIfNotFound);
        await db.transaction((tx) => tx.query('DELETE FROM session_leftovers WHERE sandbox_id = $1', [id]));
      } catch (error) {
        report('a replaced sandbox could not be killed', { sandboxId: id, error });
      }
    }
  }

  async #countingFailures(session: Session, work: () => Promise<void>): Promise<void> {
    if (this.#ctx.stopping.aborted) return;
    try {
      await work();
    } catch (error) {
      this.#failed++;
      this.#ctx.report('reconciling a session failed', { sessionId: session.id, error });
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

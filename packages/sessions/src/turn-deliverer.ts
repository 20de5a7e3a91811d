/**
 * Delivers turns: at once when a turn is sent, and in rounds for turns that had to wait or that a crash left behind. A session
 * is worked on once at a time, by the server that was asked or was first to find the turn, wherever the sandbox lives. When
 * that server dies, the rounds of the others go on. Where two of them meet all the same, that costs only duplicate work.
 */
import type { SessionId } from '@torpor/protocol';
import type { Context } from './context.ts';
import { advanceTurn } from './deliver.ts';
import { beginWork, endWork, firstOpenTurn, sessionsWithWork } from './turn.ts';

export class TurnDeliverer {
  readonly #ctx: Context;
  readonly #underWay = new Map<SessionId, Promise<void>>();
  /** Sessions that a caller asked for and that `#work` has not picked up yet. */
  readonly #requested = new Set<SessionId>();

  constructor(ctx: Context) {
    this.#ctx = ctx;
  }

  /** Works on the session now, even if its turn is waiting for a retry. */
  deliverNow(id: SessionId): void {
    this.#requested.add(id);
    this.#begin(id);
  }

  async round(): Promise<void> {
    const { db, clock, serverId, settings } = this.#ctx;
    const { hands } = settings;
    if (hands <= this.#underWay.size) return;
    for (const id of await sessionsWithWork(db, serverId, clock.now(), hands)) this.#begin(id);
  }

  async whenIdle(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.all(this.#underWay.values());
  }

  #begin(id: SessionId): void {
    if (this.#underWay.has(id) || this.#ctx.stopping.aborted) return;
    const work = this.#workAlone(id)
      .catch((error: unknown) => this.#ctx.report('delivering failed', { sessionId: id, error }))
      .finally(() => {
        this.#underWay.delete(id);
        if (this.#requested.has(id)) this.#begin(id);
      });
    this.#underWay.set(id, work);
  }

  /** A server that is alone need not say what it works on. */
  async #workAlone(id: SessionId): Promise<void> {
    const { db, clock, serverId, alone } = this.#ctx;
    if (alone) return this.#work(id);
    // A request that comes from here on is for the work that begins now, or for the next.
    const isRequested = this.#requested.delete(id);
    // The other server goes on with this turn after the one that it works on; if not, a round finds it.
    if (!(await db.transaction((tx) => beginWork(tx, id, serverId, clock.now())))) return;
    if (isRequested) this.#requested.add(id);
    try {
      await this.#work(id);
    } finally {
      await db.transaction((tx) => endWork(tx, id, serverId));
    }
  }

  async #work(id: SessionId): Promise<void> {
    for (let hasMore = true; hasMore && !this.#ctx.stopping.aborted; ) {
      const isRequested = this.#requested.delete(id);
      const turn = await firstOpenTurn(this.#ctx.db, id);
      if (turn === undefined) return;
      if (!isRequested && turn.tryAt > this.#ctx.clock.now()) return;
      hasMore = await advanceTurn(this.#ctx, turn, isRequested);
    }
  }
}

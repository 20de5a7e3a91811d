/**
 * Delivers turns: at once when a turn is sent, and in rounds for turns that had to wait or that a crash left behind. This
 * server works on a session once at a time. Another server may work on the same session; that costs only duplicate work.
 */
import type { SessionId } from '@torpor/protocol';
import type { Context } from './context.ts';
import { advanceTurn } from './deliver.ts';
import { firstOpenTurn, sessionsWithWork } from './turn.ts';

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
    const { hands } = this.#ctx.settings;
    if (hands <= this.#underWay.size) return;
    for (const id of await sessionsWithWork(this.#ctx.db, this.#ctx.clock.now(), hands)) this.#begin(id);
  }

  async whenIdle(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.all(this.#underWay.values());
  }

  #begin(id: SessionId): void {
    if (this.#underWay.has(id) || this.#ctx.stopping.aborted) return;
    const work = this.#work(id)
      .catch((error: unknown) => this.#ctx.report('delivering failed', { sessionId: id, error }))
      .finally(() => {
        this.#underWay.delete(id);
        if (this.#requested.has(id)) this.#begin(id);
      });
    this.#underWay.set(id, work);
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

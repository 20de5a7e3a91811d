/**
 * Sees to it that turns are delivered: at once when one is sent, and in rounds for those that had to wait or that
 * a crash left. One session is worked on once at a time here; that another server may do the same costs work and
 * nothing else.
 */
import type { SessionId } from '@torpor/protocol';
import type { Context } from './context.ts';
import { advanceTurn } from './deliver.ts';
import { firstOpenTurn, sessionsWithWork } from './turn.ts';

export class TurnDeliverer {
  readonly #ctx: Context;
  readonly #underWay = new Map<SessionId, Promise<void>>();
  /** Somebody asked while it was worked on. */
  readonly #requested = new Set<SessionId>();

  constructor(ctx: Context) {
    this.#ctx = ctx;
  }

  /** Works on the session now, whatever its turns had to wait for. */
  deliverNow(id: SessionId): void {
    this.#requested.add(id);
    this.#begin(id);
  }

  async round(): Promise<void> {
    const room = this.#ctx.settings.hands - this.#underWay.size;
    if (room <= 0) return;
    // Those that are worked on already are among them.
    const limit = room + this.#underWay.size;
    for (const id of await sessionsWithWork(this.#ctx.db, this.#ctx.clock.now(), limit)) this.#begin(id);
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
    for (let goOn = true; goOn && !this.#ctx.stopping.aborted; ) {
      const urged = this.#requested.delete(id);
      const turn = await firstOpenTurn(this.#ctx.db, id);
      if (turn === undefined) return;
      if (!urged && turn.tryAt > this.#ctx.clock.now()) return;
      goOn = await advanceTurn(this.#ctx, turn, urged);
    }
  }
}

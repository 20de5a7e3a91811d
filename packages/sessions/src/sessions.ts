/**
 * The entry point for the server: conversations with a program in a sandbox. The sandbox may be paused, replaced or lost;
 * the next turn is always delivered. Start reading at `decide.ts`, then `get-or-spawn.ts` and `deliver.ts`.
 */
import { isDeepStrictEqual } from 'node:util';
import { type Caller, NotificationSubscription } from '@torpor/engine';
import {
  type Healing,
  type Page,
  pageOf,
  type RebindRequest,
  type SandboxView,
  type SessionId,
  type SessionSpec,
  type SessionView,
  type SessionWake,
  TorporError,
  type TurnId,
  type TurnReply,
  type TurnView,
} from '@torpor/protocol';
import { CHANNEL, type Context } from './context.ts';
import { getOrSpawn } from './get-or-spawn.ts';
import { readOutput, type StoredChunk, wholeOutput } from './output.ts';
import { endSession, planNewSandbox, rebindTo } from './rebind.ts';
import {
  correctSpec,
  findByKey,
  getSession,
  insertSession,
  listSessions,
  type Session,
  type SessionFilter,
  sessionEnded,
  viewSession,
} from './session.ts';
import { SessionReconciler } from './session-reconciler.ts';
import { findTurnByKey, getTurn, insertTurn, listTurns, viewTurn } from './turn.ts';
import { TurnDeliverer } from './turn-deliverer.ts';
import { listWakes } from './wake.ts';

export interface SessionReply {
  readonly session: SessionView;
  readonly sandbox: SandboxView | null;
}

export type SessionsParts = Omit<Context, 'stopping'>;

const PAGE = 500;

export class Sessions {
  readonly #ctx: Context;
  readonly #notifications: NotificationSubscription;
  readonly #deliverer: TurnDeliverer;
  readonly #reconciler: SessionReconciler;
  readonly #stopping = new AbortController();
  readonly #rounds: Promise<void>[] = [];

  constructor(parts: SessionsParts) {
    this.#ctx = { ...parts, stopping: this.#stopping.signal };
    this.#notifications = new NotificationSubscription(
      parts.clock,
      parts.settings.noticeAtLeastEveryMs,
      CHANNEL,
    );
    this.#deliverer = new TurnDeliverer(this.#ctx);
    this.#reconciler = new SessionReconciler(this.#ctx);
  }

  async start(options: { readonly rounds: boolean } = { rounds: true }): Promise<void> {
    const { deliverEveryMs, healEveryMs } = this.#ctx.settings;
    await this.#notifications.start(this.#ctx.db);
    if (!options.rounds) return;
    this.#every(deliverEveryMs, 'delivering', () => this.#deliverer.round());
    this.#every(healEveryMs, 'reconciling sessions', () => this.#reconciler.round());
  }

  /** Stops what is under way; the next start continues it. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await Promise.all(this.#rounds);
    await this.#deliverer.whenIdle();
    await this.#notifications.stop();
  }

  /**
   * The session with this key, or a new one. The spec counts only for a new session, or when no sandbox could be created
   * from the old spec.
   */
  async open(org: string, key: string, spec: SessionSpec): Promise<SessionView> {
    const { db, ids, clock } = this.#ctx;
    const known = await findByKey(db, org, key);
    if (known !== undefined) return viewSession(await this.#corrected(known, spec));
    const created = { id: ids.next('ses'), org, key, spec, createdAt: clock.now() } as Session;
    const opened = await db.transaction(async (tx) => {
      await insertSession(tx, created);
      return findByKey(tx, org, key);
    });
    if (opened === undefined) throw new TorporError('conflict', 'The session was ended while it was opened.');
    return viewSession(opened);
  }

  async #corrected(session: Session, spec: SessionSpec): Promise<Session> {
    if (!session.specFailed || isDeepStrictEqual(session.spec, spec)) return session;
    await this.#ctx.db.transaction((tx) => correctSpec(tx, session, spec));
    // Turns that were waiting for a sandbox are delivered now.
    this.#deliverer.deliverNow(session.id);
    return getSession(this.#ctx.db, session.org, session.id);
  }

  /** Resumes or replaces the sandbox of the session; `change` of the session says what was done. */
  async getOrSpawn(caller: Pick<Caller, 'org' | 'signal'>, id: SessionId): Promise<SessionReply> {
    await getSession(this.#ctx.db, caller.org, id);
    const { session, sandbox } = await getOrSpawn(this.#ctx, id, caller.signal);
    this.#deliverer.deliverNow(id);
    return { session: viewSession(session), sandbox };
  }

  async get(org: string, id: SessionId): Promise<SessionView> {
    return viewSession(await getSession(this.#ctx.db, org, id));
  }

  async list(filter: SessionFilter, cursor: string, limit: number): Promise<Page<SessionView>> {
    const found = await listSessions(this.#ctx.db, filter, cursor, limit + 1);
    const { items, nextCursor } = pageOf(found, limit, ({ id }) => id);
    return { items: items.map(viewSession), nextCursor };
  }

  /** Stores the turn. It is delivered once, now or as soon as possible. */
  async send(caller: Caller, id: SessionId, input: string): Promise<TurnView> {
    const { db, ids, clock } = this.#ctx;
    const { org, idempotencyKey: key = null } = caller;
    const turnId = ids.next('turn');
    const turn = await db.transaction(async (tx) => {
      // Locked until the commit, so that turns get consecutive numbers and no turn is added to an ended session.
      await tx.query('SELECT id FROM sessions WHERE id = $1 {FOR UPDATE}', [id]);
      const session = await getSession(tx, org, id);
      const known = key === null ? undefined : await findTurnByKey(tx, id, key);
      if (known !== undefined) {
        if (known.input === input) return known;
        throw new TorporError('idempotency_mismatch', `The key "${key}" was used with another input.`);
      }
      if (session.endedAt !== null) throw sessionEnded(session);
      await insertTurn(tx, { id: turnId, sessionId: id, key, input, createdAt: clock.now() });
      return getTurn(tx, id, turnId);
    });
    this.#deliverer.deliverNow(id);
    return viewTurn(turn);
  }

  async turn(org: string, id: SessionId, turnId: TurnId): Promise<TurnReply> {
    await getSession(this.#ctx.db, org, id);
    const turn = await getTurn(this.#ctx.db, id, turnId);
    return { ...viewTurn(turn), output: await wholeOutput(this.#ctx.db, turnId) };
  }

  /** Oldest first; cursors are `seq`. */
  async turns(org: string, id: SessionId, afterSeq: number, limit: number): Promise<Page<TurnReply>> {
    await getSession(this.#ctx.db, org, id);
    const found = await listTurns(this.#ctx.db, id, afterSeq, limit + 1);
    const { items, nextCursor } = pageOf(found, limit, ({ seq }) => String(seq));
    const replies = items.map(async (turn) => ({
      ...viewTurn(turn),
      output: await wholeOutput(this.#ctx.db, turn.id),
    }));
    return { items: await Promise.all(replies), nextCursor };
  }

  /** The history of the session's wakes, oldest first; cursors are `ordinal`. */
  async wakes(org: string, id: SessionId, afterOrdinal: number, limit: number): Promise<Page<SessionWake>> {
    await getSession(this.#ctx.db, org, id);
    const found = await listWakes(this.#ctx.db, id, afterOrdinal, limit + 1);
    return pageOf(found, limit, ({ ordinal }) => String(ordinal));
  }

  /** Yields the stored output of a turn after a position, then new output, and the turn whenever its state changes. */
  async *follow(
    org: string,
    id: SessionId,
    turnId: TurnId,
    after: number,
    signal: AbortSignal,
  ): AsyncGenerator<{ readonly chunk: StoredChunk } | { readonly turn: TurnView }> {
    await getSession(this.#ctx.db, org, id);
    const ended = AbortSignal.any([signal, this.#stopping.signal]);
    let last = after;
    let shown = '';
    while (!ended.aborted) {
      const changed = this.#notifications.next(ended);
      // The turn is read before the output: a turn that has ended has all its output stored.
      const turn = viewTurn(await getTurn(this.#ctx.db, id, turnId));
      for (let chunks = await this.#chunksAfter(turnId, last); chunks.length > 0; ) {
        for (const chunk of chunks) yield { chunk };
        last = chunks.at(-1)?.position ?? last;
        chunks = chunks.length < PAGE ? [] : await this.#chunksAfter(turnId, last);
      }
      const state = JSON.stringify([turn.state, turn.error]);
      if (state !== shown) yield { turn };
      shown = state;
      if (turn.endedAt !== null) return;
      await changed;
    }
  }

  /**
   * Binds the session to a sandbox that the caller names, or to a new one, perhaps on another runtime. For a program that
   * hangs, or a runtime that no longer exists.
   */
  async rebind(caller: Caller, id: SessionId, { sandboxId, runtime }: RebindRequest): Promise<SessionReply> {
    const session = await getSession(this.#ctx.db, caller.org, id);
    if (sandboxId === undefined) await planNewSandbox(this.#ctx, session, runtime);
    else await rebindTo(this.#ctx, session, sandboxId);
    return this.getOrSpawn(caller, id);
  }

  /** Fails the turns that are waiting, and kills the sandbox. */
  async end(org: string, id: SessionId): Promise<SessionView> {
    await endSession(this.#ctx, await getSession(this.#ctx.db, org, id));
    return this.get(org, id);
  }

  healing(): Promise<Healing> {
    return this.#reconciler.report();
  }

  /** Runs one round of the reconciler now. */
  async reconcile(): Promise<void> {
    await this.#reconciler.round();
  }

  async deliver(): Promise<void> {
    await this.#deliverer.round();
    await this.#deliverer.whenIdle();
  }

  #chunksAfter(turnId: TurnId, position: number): Promise<StoredChunk[]> {
    return readOutput(this.#ctx.db, turnId, position, PAGE);
  }

  #every(ms: number, what: string, work: () => Promise<void>): void {
    const { clock, report } = this.#ctx;
    const { signal } = this.#stopping;
    const loop = async () => {
      while (!signal.aborted) {
        await work().catch((error: unknown) => report(`${what} failed`, { error }));
        await clock.sleep(ms, signal).catch(() => {});
      }
    };
    this.#rounds.push(loop());
  }
}

/**
 * Sessions: conversations with a program in a sandbox that sleeps between messages.
 *
 * ```ts
 * const session = await torpor.sessions.getOrSpawn(`chat-${chat.id}`, { program: { command: 'my-agent' } });
 * const { output } = await session.send('What is in this directory?');
 * for await (const event of session.stream('And in its parent?')) …
 * ```
 */
import {
  type Healing,
  healingSchema,
  type OpenSessionRequest,
  openSessionReplySchema,
  pageSchema,
  type RebindRequest,
  type SandboxView,
  type SessionId,
  type SessionView,
  type SessionWake,
  sessionViewSchema,
  sessionWakeSchema,
  type TurnId,
  type TurnReply,
  turnReplySchema,
} from '@torpor/protocol';
import type { JsonCalls, MutationOptions, ReadOptions } from './json-calls.ts';
import { everyItem, type Page, type PageOptions } from './pages.ts';
import { followTurn, type TurnEvent } from './turn-stream.ts';
import { validated } from './validate.ts';

/** The options of a new session. An existing session ignores them. */
export type SessionOptions = Omit<OpenSessionRequest, 'key'>;

export interface SessionFilter extends PageOptions {
  readonly key?: string | undefined;
  /** Whether ended sessions are included. */
  readonly ended?: boolean | undefined;
}

const PATH = '/v1/sessions';
const sessionPage = pageSchema(sessionViewSchema);
const turnPage = pageSchema(turnReplySchema);
const wakePage = pageSchema(sessionWakeSchema);

export class Sessions {
  readonly #calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.#calls = calls;
  }

  /** The session of that key with a running sandbox: found, woken or created. `change` says which, and why. */
  async getOrSpawn(key: string, request: SessionOptions, options: MutationOptions = {}): Promise<Session> {
    const reply = await this.#calls.post(PATH, openSessionReplySchema, { key, ...request }, options);
    return new Session(this.#calls, reply.session, reply.sandbox);
  }

  async get(id: SessionId, options: ReadOptions = {}): Promise<Session> {
    return new Session(this.#calls, await this.#calls.get(pathOf(id), sessionViewSchema, options), null);
  }

  page({ key, ended, limit, cursor, ...options }: SessionFilter = {}): Promise<Page<SessionView>> {
    return this.#calls.get(PATH, sessionPage, { query: { key, ended, limit, cursor }, ...options });
  }

  list(filter: SessionFilter = {}): AsyncGenerator<SessionView, void> {
    return everyItem((cursor = filter.cursor) => this.page({ ...filter, cursor }));
  }

  /** How many sessions have lost their sandbox, and how fast they get a new one. */
  healing(options: ReadOptions = {}): Promise<Healing> {
    return this.#calls.get('/v1/admin/session-healing', healingSchema, options);
  }
}

export class Session {
  readonly id: SessionId;
  /** The session as the server last described it. */
  view: SessionView;
  /** The sandbox of the session; null when the session was only read. */
  sandbox: SandboxView | null;
  readonly #calls: JsonCalls;

  constructor(calls: JsonCalls, view: SessionView, sandbox: SandboxView | null) {
    this.#calls = calls;
    this.id = view.id;
    this.view = view;
    this.sandbox = sandbox;
  }

  /** Resolves when the turn has ended; `state` and `error` have the result. The turn is delivered once. */
  async send(input: string, options: MutationOptions = {}): Promise<TurnReply> {
    const { id } = await this.post(input, options);
    for await (const _ of this.follow(id, options)) void _;
    return this.turn(id, { signal: options.signal });
  }

  /**
   * Resolves when the server has stored the turn, which it delivers as soon as possible. When the response is lost, the
   * same call with the same idempotency key returns that turn instead of creating a second one.
   */
  post(input: string, options: MutationOptions = {}): Promise<TurnReply> {
    return this.#calls.post(pathOf(this.id, 'turns'), turnReplySchema, { input }, options);
  }

  /** Sends a turn and streams its output. Leaving the loop does not stop the program. */
  async *stream(input: string, options: MutationOptions = {}): AsyncGenerator<TurnEvent, void> {
    const { id } = await this.post(input, options);
    yield* this.follow(id, options);
  }

  follow(turn: TurnId, { signal, retries }: ReadOptions = {}): AsyncGenerator<TurnEvent, void> {
    return followTurn(this.#calls.transport, pathOf(this.id, `turns/${turn}`), { signal, retries });
  }

  turn(turn: TurnId, options: ReadOptions = {}): Promise<TurnReply> {
    return this.#calls.get(pathOf(this.id, `turns/${turn}`), turnReplySchema, options);
  }

  /** The turns of the session, oldest first. */
  turns({ limit, cursor: first, ...options }: PageOptions = {}): AsyncGenerator<TurnReply, void> {
    return everyItem((cursor = first) =>
      this.#calls.get(pathOf(this.id, 'turns'), turnPage, { query: { limit, cursor }, ...options }),
    );
  }

  /** The history of its sandboxes, oldest first: woken, replaced, rebound or failed, and what was lost since when. */
  wakes({ limit, cursor: first, ...options }: PageOptions = {}): AsyncGenerator<SessionWake, void> {
    return everyItem((cursor = first) =>
      this.#calls.get(pathOf(this.id, 'wakes'), wakePage, { query: { limit, cursor }, ...options }),
    );
  }

  /**
   * Binds the session to a new sandbox, or to a named one. `runtime` moves the session to that runtime permanently; files
   * stay with the runtime that wrote them. The previous sandbox is left alone. `view.change` says what was lost, and
   * since when.
   */
  async rebind(request: RebindRequest = {}, options: MutationOptions = {}): Promise<this> {
    const reply = await this.#calls.post(pathOf(this.id, 'rebind'), openSessionReplySchema, request, options);
    this.view = reply.session;
    this.sandbox = reply.sandbox;
    return this;
  }

  /** Ends the session and its sandbox. */
  async end(options: MutationOptions = {}): Promise<SessionView> {
    this.view = await validated(await this.#calls.delete(pathOf(this.id), options), sessionViewSchema);
    return this.view;
  }
}

function pathOf(id: SessionId, rest?: string): string {
  const session = `${PATH}/${encodeURIComponent(id)}`;
  return rest === undefined ? session : `${session}/${rest}`;
}

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

/** What a session is made with; it counts when it is made. */
export type SessionOptions = Omit<OpenSessionRequest, 'key'>;

export interface SessionFilter extends PageOptions {
  readonly key?: string | undefined;
  /** Also those that are ended. */
  readonly ended?: boolean | undefined;
}

const PATH = '/v1/sessions';
const sessionPage = pageSchema(sessionViewSchema);
const turnPage = pageSchema(turnReplySchema);
const wakePage = pageSchema(sessionWakeSchema);

export class Sessions {
  private readonly calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.calls = calls;
  }

  /** The session of that key with a sandbox that runs: found, woken, or made anew. `change` says which, and why. */
  async getOrSpawn(key: string, request: SessionOptions, options: MutationOptions = {}): Promise<Session> {
    const reply = await this.calls.post(PATH, openSessionReplySchema, { key, ...request }, options);
    return new Session(this.calls, reply.session, reply.sandbox);
  }

  async get(id: SessionId, options: ReadOptions = {}): Promise<Session> {
    return new Session(this.calls, await this.calls.get(pathOf(id), sessionViewSchema, options), null);
  }

  page({ key, ended, limit, cursor, ...options }: SessionFilter = {}): Promise<Page<SessionView>> {
    return this.calls.get(PATH, sessionPage, { query: { key, ended, limit, cursor }, ...options });
  }

  list(filter: SessionFilter = {}): AsyncGenerator<SessionView, void> {
    return everyItem((cursor = filter.cursor) => this.page({ ...filter, cursor }));
  }

  /** How many sessions have a sandbox that died, and how fast they heal. */
  healing(options: ReadOptions = {}): Promise<Healing> {
    return this.calls.get('/v1/admin/session-healing', healingSchema, options);
  }
}

export class Session {
  readonly id: SessionId;
  /** As it was when it was last asked for. */
  view: SessionView;
  /** The sandbox that it was given; null when it was only looked up. */
  sandbox: SandboxView | null;
  private readonly calls: JsonCalls;

  constructor(calls: JsonCalls, view: SessionView, sandbox: SandboxView | null) {
    this.calls = calls;
    this.id = view.id;
    this.view = view;
    this.sandbox = sandbox;
  }

  /** Resolves when the turn has ended, well or not; `state` and `error` say how. It is delivered once. */
  async send(input: string, options: MutationOptions = {}): Promise<TurnReply> {
    const { id } = await this.post(input, options);
    for await (const _ of this.follow(id, options)) void _;
    return this.turn(id, { signal: options.signal });
  }

  /**
   * Kept by the server when this resolves; delivered and answered as soon as it can be. When the answer is lost, the
   * same call with the same idempotency key finds the turn, and makes no second one.
   */
  post(input: string, options: MutationOptions = {}): Promise<TurnReply> {
    return this.calls.post(pathOf(this.id, 'turns'), turnReplySchema, { input }, options);
  }

  /** The same with the answer as it comes. Leaving the loop does not stop the program. */
  async *stream(input: string, options: MutationOptions = {}): AsyncGenerator<TurnEvent, void> {
    const { id } = await this.post(input, options);
    yield* this.follow(id, options);
  }

  follow(turn: TurnId, { signal, retries }: ReadOptions = {}): AsyncGenerator<TurnEvent, void> {
    return followTurn(this.calls.transport, pathOf(this.id, `turns/${turn}`), { signal, retries });
  }

  turn(turn: TurnId, options: ReadOptions = {}): Promise<TurnReply> {
    return this.calls.get(pathOf(this.id, `turns/${turn}`), turnReplySchema, options);
  }

  /** What was said and answered, oldest first. */
  turns({ limit, cursor: first, ...options }: PageOptions = {}): AsyncGenerator<TurnReply, void> {
    return everyItem((cursor = first) =>
      this.calls.get(pathOf(this.id, 'turns'), turnPage, { query: { limit, cursor }, ...options }),
    );
  }

  /** What became of its sandboxes: woken, replaced, rebound or failed, with what was lost since when; oldest first. */
  wakes({ limit, cursor: first, ...options }: PageOptions = {}): AsyncGenerator<SessionWake, void> {
    return everyItem((cursor = first) =>
      this.calls.get(pathOf(this.id, 'wakes'), wakePage, { query: { limit, cursor }, ...options }),
    );
  }

  /**
   * To a new sandbox, or to one that is named. `runtime` moves the session there for good; files stay with the
   * runtime that wrote them. The sandbox it had is left alone. `view.change` says what was lost, and since when.
   */
  async rebind(request: RebindRequest = {}, options: MutationOptions = {}): Promise<this> {
    const reply = await this.calls.post(pathOf(this.id, 'rebind'), openSessionReplySchema, request, options);
    this.view = reply.session;
    this.sandbox = reply.sandbox;
    return this;
  }

  /** With its sandbox. */
  async end(options: MutationOptions = {}): Promise<SessionView> {
    this.view = await validated(await this.calls.delete(pathOf(this.id), options), sessionViewSchema);
    return this.view;
  }
}

function pathOf(id: SessionId, rest?: string): string {
  const session = `${PATH}/${encodeURIComponent(id)}`;
  return rest === undefined ? session : `${session}/${rest}`;
}

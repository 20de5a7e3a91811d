/**
 * Accepts, drives and awaits operations: one at a time per sandbox. A request that is identical to the
 * open operation joins it; any other request is refused with the open operation's id; a kill that a caller
 * asked for supersedes the open operation.
 */
import {
  type Actor,
  type CheckpointId,
  type OperationId,
  type OperationKind,
  type Reason,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import type { Context } from '../context.ts';
import type { LedgerNotifications } from '../ledger/read.ts';
import { decide } from '../lifecycle.ts';
import { requireOwner } from '../nodes/ownership.ts';
import { ConstraintViolation, type Transaction } from '../ports/database.ts';
import type { Span } from '../ports/tracing.ts';
import { type Dialect, lockSandbox, noSuchSandbox, type Sandbox } from '../sandbox.ts';
import { isIdentical, refused, supersedes, transitioning } from './conflicts.ts';
import { findByKey, hashBody, type Key, rememberKey } from './idempotency.ts';
import {
  endOperation,
  FenceLost,
  findOpenOperation,
  findOperation,
  findOperationOfState,
  insertOperation,
  type Operation,
  outcomeError,
  type Succeeded,
} from './operation.ts';
import type { OperationHandle } from './operation-handle.ts';
import {
  type AnswerKind,
  type IdempotentKind,
  isIdempotent,
  KINDS_THAT_SATISFY,
  type RequestedKind,
  type RequestOf,
} from './operation-kinds.ts';
import { OperationTrace } from './operation-trace.ts';

/** Who sends a request, and how a repetition of the request is recognised. */
export interface Caller {
  readonly org: string;
  /** The key and user of the request, for the audit. Absent: no key was involved. */
  readonly by?: Actor | undefined;
  /** The API that the caller speaks; a sandbox keeps the dialect of the caller that created it. */
  readonly dialect?: Dialect | undefined;
  readonly idempotencyKey?: string;
  /** Ends the caller's waiting, not the operation. */
  readonly signal?: AbortSignal;
  /** The operation is traced within this span. Absent: it begins a trace of its own. */
  readonly span?: Span | undefined;
}

/** A request for a new operation. */
interface OperationRequest<K extends OperationKind> {
  readonly kind: K;
  readonly sandboxId: SandboxId;
  readonly caller: Caller;
  readonly request: RequestOf<K>;
  readonly reason: Reason;
}

/** The kinds of requests to an existing sandbox. */
type SandboxRequestKind = Exclude<RequestedKind, 'create'>;

/** Carries an operation out and writes its end. */
type Execute = (handle: OperationHandle) => Promise<void>;

/** A request to an existing sandbox, and how it is carried out: in the accepting transaction, and after it. */
interface OperationTask<K extends SandboxRequestKind, A> extends OperationRequest<K> {
  /** Runs in the accepting transaction, with the sandbox locked. `execute` receives its result. */
  readonly onAccept: (
    tx: Transaction,
    sandbox: Sandbox,
    operation: Operation,
    superseded: Operation | undefined,
  ) => Promise<A>;
  readonly execute: (handle: OperationHandle, accepted: A) => Promise<void>;
}

/** How the creation of a sandbox is carried out. */
interface CreateTask<A> {
  readonly caller: Caller;
  /** The whole request of the caller, which the idempotency key is compared by. */
  readonly request: unknown;
  readonly operation: Operation<'create'>;
  /** Writes the rows of the sandbox and of the operation. `execute` receives its result. */
  readonly insert: (tx: Transaction) => Promise<A>;
  readonly execute: (handle: OperationHandle, inserted: A) => Promise<void>;
}

/** The end of an operation that a caller waited for. */
interface Ended<K extends SandboxRequestKind> {
  readonly is: 'ended';
  readonly operation: Succeeded<AnswerKind<K>>;
  /** Another caller had begun the operation. */
  readonly joined: boolean;
}

/** The sandbox is in the requested state already; no operation was needed. */
interface AlreadyInState {
  readonly is: 'already';
  readonly sandbox: Sandbox;
}

/** What the accepting transaction decided. */
type Acceptance<A> =
  | {
      readonly is: 'accepted';
      readonly operation: Operation;
      readonly superseded: Operation | undefined;
      /** The result of `onAccept`. */
      readonly accepted: A;
    }
  /** `replayed`: the idempotency key was used within the last day, also for an operation that has ended. */
  | { readonly is: 'joined' | 'replayed'; readonly operation: Pick<Operation, 'id'> }
  | AlreadyInState;

/** What operations need of the context that they are part of. */
type OperationDependencies = Pick<
  Context,
  'db' | 'clock' | 'ids' | 'settings' | 'serverId' | 'report' | 'tracing' | 'node' | 'foreground'
>;

interface Driven {
  readonly done: Promise<void>;
  readonly controller: AbortController;
}

export class Operations {
  readonly #ctx: OperationDependencies;
  readonly #notifications: LedgerNotifications;
  readonly #driven = new Map<OperationId, Driven>();

  constructor(ctx: OperationDependencies, notifications: LedgerNotifications) {
    this.#ctx = ctx;
    this.#notifications = notifications;
  }

  /** Accepts an operation on an existing sandbox or refuses it, drives it, and waits for its end. */
  async run<K extends Exclude<SandboxRequestKind, IdempotentKind>, A>(
    task: OperationTask<K, A>,
  ): Promise<Succeeded<AnswerKind<K>>> {
    const ended = await this.runIdempotent<K, A>(task);
    if (ended.is === 'already') throw new Error(`A ${task.kind} always needs an operation.`);
    return ended.operation;
  }

  /** Like `run`, for kinds of requests that need no operation when the sandbox is in the requested state already. */
  async runIdempotent<K extends SandboxRequestKind, A>(
    task: OperationTask<K, A>,
  ): Promise<Ended<K> | AlreadyInState> {
    const { kind, sandboxId, caller } = task;
    const trace = new OperationTrace(this.#ctx.tracing, caller.span, { kind, sandboxId, org: caller.org });
    const acceptance = await this.#tracedAccept(trace, () => this.#accept(task));
    if (acceptance.is === 'already') {
      trace.endWithoutOperation('already');
      return acceptance;
    }
    if (acceptance.is === 'accepted') {
      const { operation, superseded, accepted } = acceptance;
      const execute: Execute = async (handle) => {
        // The driver of the superseded operation must have stopped before anything is destroyed under it.
        if (superseded !== undefined) await this.#interrupt(superseded.id);
        await task.execute(handle, accepted);
      };
      this.drive(operation, execute, trace);
    } else {
      trace.endWithoutOperation(acceptance.is, acceptance.operation.id);
    }
    const operation = await this.#answer(task.kind, acceptance.operation.id, task.caller.signal);
    return { is: 'ended', operation, joined: acceptance.is === 'joined' };
  }

  async #tracedAccept<T>(trace: OperationTrace, accept: () => Promise<T>): Promise<T> {
    trace.enter('accept');
    try {
      return await accept();
    } catch (thrown) {
      trace.endWithoutOperation('refused', undefined, thrown);
      throw thrown;
    }
  }

  /** Accepts an operation under the sandbox's lock, or throws why not. */
  async #accept<A>({ onAccept, ...request }: OperationTask<SandboxRequestKind, A>): Promise<Acceptance<A>> {
    return this.#withRetry(async (tx): Promise<Acceptance<A>> => {
      const key = keyOf(request, request.sandboxId);
      const known = key === undefined ? undefined : await findByKey(tx, key, this.#ctx.clock.now());
      if (known !== undefined) return { is: 'replayed', operation: { id: known } };

      const locked = await lockSandbox(tx, request.sandboxId);
      if (locked.org !== request.caller.org) throw noSuchSandbox(request.sandboxId);
      const decision = decide(locked.state, request.kind);
      const open = await findOpenOperation(tx, locked.id);
      const sandbox = this.#ctx.node.isClustered
        ? await requireOwner(this.#ctx, tx, locked, {
            kind: request.kind,
            from: (request.request as { readonly from?: CheckpointId }).from,
            isBusy: open !== undefined,
          })
        : locked;
      // A sandbox that is paused during a snapshot, fork or rollback is about to be started again: a pause of it is not
      // answered `already`. A sandbox that runs during an open operation stays usable: a resume of it is answered `already`.
      const already = decision.kind === 'already' && (open === undefined || request.kind === 'resume');
      if (already) {
        if (key !== undefined && isIdempotent(request.kind))
          await this.#rememberAlready(tx, request.kind, sandbox.id, key);
        return { is: 'already', sandbox };
      }
      if (open !== undefined && !supersedes(request, open)) {
        if (!isIdentical(open, request)) throw transitioning(open);
        if (key !== undefined) await rememberKey(tx, key, open.id, this.#keyExpiry());
        return { is: 'joined', operation: open };
      }
      if (decision.kind === 'refused') throw refused(sandbox, request.kind);
      if (open !== undefined) {
        await endOperation(tx, open, this.#ctx.clock.now(), {
          outcome: 'superseded',
          error: new TorporError('killed', 'The sandbox was killed while this was under way.'),
        });
      }
      const operation = this.draft(request);
      await insertOperation(tx, operation);
      if (key !== undefined) await rememberKey(tx, key, operation.id, this.#keyExpiry());
      const accepted = await onAccept(tx, sandbox, operation, open);
      return { is: 'accepted', operation, superseded: open, accepted };
    });
  }

  /** Accepts the creation of a sandbox, which has no row to lock yet; drives it, and waits for its end. */
  async runCreate<A>(task: CreateTask<A>): Promise<Succeeded<'create'>> {
    const { caller, request, operation, insert, execute } = task;
    const key = keyOf({ caller, request, kind: operation.kind }, '');
    const trace = new OperationTrace(this.#ctx.tracing, caller.span, operation);
    const acceptance = await this.#tracedAccept(trace, () =>
      this.#withRetry(async (tx) => {
        const known = key === undefined ? undefined : await findByKey(tx, key, this.#ctx.clock.now());
        if (known !== undefined) return { id: known };
        // The key comes first, so that an identical request waits here and finds this operation instead of its sandbox.
        if (key !== undefined) await rememberKey(tx, key, operation.id, this.#keyExpiry());
        return { id: operation.id, inserted: await insert(tx) };
      }),
    );
    if ('inserted' in acceptance) {
      const { inserted } = acceptance;
      this.drive(operation, (handle) => execute(handle, inserted), trace);
    } else {
      trace.endWithoutOperation('replayed', acceptance.id);
    }
    return this.#answer('create', acceptance.id, caller.signal);
  }

  /** A new operation; not yet written. */
  draft<K extends OperationKind>(request: OperationRequest<K>): Operation<K> {
    const now = this.#ctx.clock.now();
    return {
      kind: request.kind,
      id: this.#ctx.ids.next('op'),
      org: request.caller.org,
      by: request.caller.by ?? null,
      sandboxId: request.sandboxId,
      parentId: null,
      request: request.request,
      reason: request.reason,
      serverId: this.#ctx.serverId,
      fence: 1,
      phase: null,
      startedAt: now,
      deadlineAt: now + this.#ctx.settings.operationMs,
      endedAt: null,
      outcome: null,
      result: null,
      error: null,
    } as Operation<K>;
  }

  /**
   * The operation of an earlier request with the same idempotency key, once it has ended. Verbs call this before any check
   * whose result may have changed since the first request.
   */
  async replayed<K extends RequestedKind>(
    caller: Caller,
    kind: K,
    sandboxId: SandboxId | '',
    request: unknown,
  ): Promise<Succeeded<AnswerKind<K>> | undefined> {
    const key = keyOf({ caller, request, kind }, sandboxId);
    if (key === undefined) return undefined;
    const id = await this.#ctx.db.transaction((tx) => findByKey(tx, key, this.#ctx.clock.now()));
    return id === undefined ? undefined : this.#answer(kind, id, caller.signal);
  }

  /** Drives an operation whose fence this server holds: a new operation, or an operation that it took over. */
  drive(
    operation: Operation,
    execute: Execute,
    trace = new OperationTrace(this.#ctx.tracing, undefined, operation),
  ): void {
    trace.name(operation);
    const controller = new AbortController();
    const timer = new AbortController();
    const left = Math.max(0, operation.deadlineAt - this.#ctx.clock.now());
    this.#ctx.clock.sleep(left, timer.signal).then(
      () => controller.abort(new TorporError('timeout', `Operation ${operation.id} did not end in time.`)),
      () => {},
    );
    const done = this.#ctx.foreground
      .run(() => execute({ operation, signal: controller.signal, trace }))
      .catch((thrown: unknown) => {
        // No answer depends on this error: the row says how the operation ended, and the reconciler takes up an
        // operation that is still open.
        if (!(thrown instanceof FenceLost)) {
          this.#ctx.report('operation left open', {
            operationId: operation.id,
            kind: operation.kind,
            error: thrown,
          });
        }
        trace.fail(thrown);
      })
      .then(() => this.#endTrace(trace, operation))
      .finally(() => {
        timer.abort();
        this.#driven.delete(operation.id);
      });
    this.#driven.set(operation.id, { done, controller });
  }

  /** The row says how the operation ended. */
  async #endTrace(trace: OperationTrace, { id }: Operation): Promise<void> {
    if (!this.#ctx.tracing.enabled) return;
    trace.endOperation(await findOperation(this.#ctx.db, id).catch(() => undefined));
  }

  isDriving(id: OperationId): boolean {
    return this.#driven.has(id);
  }

  /** Waits until this server drives no operation any more. */
  async idle(): Promise<void> {
    while (this.#driven.size > 0) await Promise.all([...this.#driven.values()].map((driven) => driven.done));
  }

  /**
   * The operation once it has ended, on whichever server; throws its error when it failed. Does not wait for an operation
   * that this server left open: only the reconciler can end it, and the reconciler may be the caller (a deadlock).
   */
  async finished(id: OperationId, signal: AbortSignal = new AbortController().signal): Promise<Operation> {
    for (;;) {
      const notified = this.#notifications.next(signal);
      const localDriver = this.#driven.get(id);
      if (localDriver !== undefined) await Promise.race([localDriver.done, aborted(signal)]);
      const operation = await findOperation(this.#ctx.db, id);
      if (operation === undefined) throw new TorporError('not_found', `There is no operation ${id}.`);
      if (operation.outcome === 'succeeded') return operation;
      if (operation.endedAt !== null) throw outcomeError(operation);
      const leftOpen = localDriver !== undefined && !this.isDriving(id);
      if (signal.aborted || leftOpen) throw stillUnderWay(operation);
      await notified;
    }
  }

  /** The operation that answers a request, once it has succeeded. */
  async #answer<K extends RequestedKind>(
    kind: K,
    id: OperationId,
    signal: AbortSignal | undefined,
  ): Promise<Succeeded<AnswerKind<K>>> {
    const operation = await this.finished(id, signal);
    if (answers(kind, operation)) return operation;
    throw new Error(`Operation ${id} is a ${operation.kind}, which does not answer a ${kind}.`);
  }

  async #interrupt(id: OperationId): Promise<void> {
    const driven = this.#driven.get(id);
    driven?.controller.abort(new FenceLost(id));
    await driven?.done;
  }

  /**
   * Maps the key to the operation that put the sandbox into this state. Without such an operation, or when its result
   * does not answer this request, the key is not used, and a repeated request is decided anew.
   */
  async #rememberAlready(
    tx: Transaction,
    kind: IdempotentKind,
    sandboxId: SandboxId,
    key: Key,
  ): Promise<void> {
    const done = await findOperationOfState(tx, sandboxId, kind);
    if (done !== undefined && answers(kind, done)) await rememberKey(tx, key, done.id, this.#keyExpiry());
  }

  #keyExpiry(): number {
    return this.#ctx.clock.now() + this.#ctx.settings.idempotencyMs;
  }

  /** Identical requests that arrive at once collide on a unique index; the later one retries and finds the earlier. */
  async #withRetry<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    try {
      return await this.#ctx.db.transaction(work);
    } catch (thrown) {
      if (!(thrown instanceof ConstraintViolation && thrown.kind === 'unique')) throw thrown;
      return this.#ctx.db.transaction(work);
    }
  }
}

function keyOf(
  request: { readonly caller: Caller; readonly kind: string; readonly request: unknown },
  sandboxId: SandboxId | '',
): Key | undefined {
  const { org, idempotencyKey: key } = request.caller;
  return key === undefined
    ? undefined
    : { org, scope: `${request.kind} ${sandboxId}`, key, bodyHash: hashBody(request.request) };
}

function answers<K extends RequestedKind>(
  kind: K,
  operation: Operation,
): operation is Operation & Succeeded<AnswerKind<K>> {
  const kinds: readonly OperationKind[] = KINDS_THAT_SATISFY[kind];
  return kinds.includes(operation.kind) && operation.result !== null;
}

function stillUnderWay(operation: Operation): TorporError {
  return new TorporError('timeout', `The ${operation.kind} is still under way.`, {
    sandboxId: operation.sandboxId,
    operationId: operation.id,
    details: { phase: operation.phase },
  });
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

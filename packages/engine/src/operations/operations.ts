/**
 * Where operations are accepted, driven and awaited: one at a time per sandbox. A twin of what is under
 * way joins it, anything else is told what is under way, and a kill supersedes it.
 */
import {
  type OperationId,
  type OperationKind,
  type Reason,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import type { Context } from '../context.ts';
import type { LedgerNotifications } from '../ledger/read.ts';
import { decide, type Wish } from '../lifecycle.ts';
import { ConstraintViolation, type Transaction } from '../ports/database.ts';
import { refusedBy } from '../refused-by.ts';
import { type Dialect, lockSandbox, noSuchSandbox, type Sandbox } from '../sandbox.ts';
import { canonical, findByKey, hashBody, type Key, rememberKey } from './idempotency.ts';
import {
  endOperation,
  FenceLost,
  findLastDone,
  findOpenOperation,
  findOperation,
  insertOperation,
  type Operation,
  outcomeError,
} from './operation.ts';
import type { OperationHandle } from './operation-handle.ts';

/** Who asks, and how the request can be told from another. */
export interface Caller {
  readonly org: string;
  /** The API that the caller speaks; a sandbox keeps that of the caller who created it. */
  readonly dialect?: Dialect | undefined;
  readonly idempotencyKey?: string;
  /** Ends the waiting, not the operation. */
  readonly signal?: AbortSignal;
}

export interface Ask {
  readonly kind: Exclude<OperationKind, 'create'> & Wish;
  readonly sandboxId: SandboxId;
  readonly caller: Caller;
  readonly request: Readonly<Record<string, unknown>>;
  readonly reason: Reason;
}

/** What the lock on the sandbox allows an accepted operation to write together with its own row. */
export type Admit = (
  tx: Transaction,
  sandbox: Sandbox,
  operation: Operation,
  superseded: Operation | undefined,
) => Promise<void>;

/** Drives an operation to its end, which it writes itself. */
export type Drive = (handle: OperationHandle) => Promise<void>;

export type Accepted =
  /** `replayed` is the answer to a key that was used before, however long ago. */
  | { readonly is: 'accepted' | 'joined' | 'replayed'; readonly operationId: OperationId }
  | { readonly is: 'already'; readonly sandbox: Sandbox };

/** What operations need of the context that they are part of. */
type OperationParts = Pick<Context, 'db' | 'clock' | 'ids' | 'settings' | 'serverId' | 'report'>;

interface Driven {
  readonly done: Promise<void>;
  readonly controller: AbortController;
}

export class Operations {
  private readonly ctx: OperationParts;
  private readonly growth: LedgerNotifications;
  private readonly driven = new Map<OperationId, Driven>();

  constructor(ctx: OperationParts, growth: LedgerNotifications) {
    this.ctx = ctx;
    this.growth = growth;
  }

  /** A new operation row; not yet written. */
  draft(ask: Omit<Ask, 'kind'> & { readonly kind: OperationKind }): Operation {
    const now = this.ctx.clock.now();
    return {
      id: this.ctx.ids.next('op'),
      org: ask.caller.org,
      sandboxId: ask.sandboxId,
      parentId: null,
      kind: ask.kind,
      request: ask.request,
      reason: ask.reason,
      owner: this.ctx.serverId,
      fence: 1,
      phase: null,
      startedAt: now,
      deadlineAt: now + this.ctx.settings.operationMs,
      endedAt: null,
      outcome: null,
      result: null,
      error: null,
    };
  }

  /** Accepts a wish under the sandbox's lock, or says why not; then starts driving it. */
  async accept(ask: Ask, admit: Admit, drive: Drive): Promise<Accepted> {
    let superseded: Operation | undefined;
    let operation: Operation | undefined;
    const accepted = await this.once(async (tx): Promise<Accepted> => {
      superseded = undefined;
      operation = undefined;
      const key = keyOf(ask, ask.sandboxId);
      const known = key === undefined ? undefined : await findByKey(tx, key, this.ctx.clock.now());
      if (known !== undefined) return { is: 'replayed', operationId: known };

      const sandbox = await lockSandbox(tx, ask.sandboxId);
      if (sandbox.org !== ask.caller.org) throw noSuchSandbox(ask.sandboxId);
      const decision = decide(sandbox.state, ask.kind);
      const open = await findOpenOperation(tx, sandbox.id);
      // A sandbox that runs is running, also while it is being snapshotted.
      const already = decision.kind === 'already' && (open === undefined || ask.kind === 'resume');
      if (already) {
        if (key !== undefined) await this.rememberAlready(tx, ask, key);
        return { is: 'already', sandbox };
      }
      if (open !== undefined && !supersedes(ask, open)) {
        if (!isTwin(open, ask)) throw transitioning(open);
        if (key !== undefined) await rememberKey(tx, key, open.id, this.keyExpiry());
        return { is: 'joined', operationId: open.id };
      }
      if (decision.kind === 'refused') throw refused(sandbox, ask.kind);
      if (open !== undefined) {
        superseded = open;
        await endOperation(tx, open, this.ctx.clock.now(), {
          outcome: 'superseded',
          error: new TorporError('killed', 'The sandbox was killed while this was under way.'),
        });
      }
      operation = this.draft(ask);
      await insertOperation(tx, operation);
      if (key !== undefined) await rememberKey(tx, key, operation.id, this.keyExpiry());
      await admit(tx, sandbox, operation, superseded);
      return { is: 'accepted', operationId: operation.id };
    });
    if (operation !== undefined) {
      // The driver of what was superseded must be out of the way before anything is destroyed under it.
      const gone = superseded === undefined ? Promise.resolve() : this.interrupt(superseded.id);
      this.drive(operation, async (handle) => {
        await gone;
        await drive(handle);
      });
    }
    return accepted;
  }

  /** Accepts the creation of something that has no row to lock yet. */
  async acceptNew(
    caller: Caller,
    request: unknown,
    operation: Operation,
    insert: (tx: Transaction) => Promise<void>,
    drive: Drive,
  ): Promise<OperationId> {
    const key = keyOf({ caller, request, kind: operation.kind }, '');
    const id = await this.once(async (tx) => {
      const known = key === undefined ? undefined : await findByKey(tx, key, this.ctx.clock.now());
      if (known !== undefined) return known;
      // First of all, so that a twin waits here and finds the other's operation, not what that one made.
      if (key !== undefined) await rememberKey(tx, key, operation.id, this.keyExpiry());
      await insert(tx);
      return operation.id;
    });
    if (id === operation.id) this.drive(operation, drive);
    return id;
  }

  /** What this very request made when it was asked before; looked at before anything else can refuse it. */
  async replay(
    caller: Caller,
    kind: string,
    thing: SandboxId | '',
    request: unknown,
  ): Promise<OperationId | undefined> {
    const key = keyOf({ caller, request, kind }, thing);
    if (key === undefined) return undefined;
    return this.ctx.db.transaction((tx) => findByKey(tx, key, this.ctx.clock.now()));
  }

  /** Drives an operation that is ours; used for new ones and for those taken over. */
  drive(operation: Operation, drive: Drive): void {
    const controller = new AbortController();
    const timer = new AbortController();
    const left = Math.max(0, operation.deadlineAt - this.ctx.clock.now());
    this.ctx.clock.sleep(left, timer.signal).then(
      () => controller.abort(new TorporError('timeout', `Operation ${operation.id} did not end in time.`)),
      () => {},
    );
    const done = drive({ operation, signal: controller.signal })
      .catch((thrown: unknown) => {
        // Nobody's answer depends on this: the row says what became of the operation, and one that is
        // still open is taken up by the reconciler.
        if (!(thrown instanceof FenceLost)) {
          this.ctx.report('operation left open', {
            operationId: operation.id,
            kind: operation.kind,
            error: thrown,
          });
        }
      })
      .finally(() => {
        timer.abort();
        this.driven.delete(operation.id);
      });
    this.driven.set(operation.id, { done, controller });
  }

  isDriving(id: OperationId): boolean {
    return this.driven.has(id);
  }

  /** Waits until nothing is being driven here any more. */
  async idle(): Promise<void> {
    while (this.driven.size > 0) await Promise.all([...this.driven.values()].map((driven) => driven.done));
  }

  /**
   * The operation once it has ended, whoever drives it; throws its error when it failed. One that was
   * driven here and had to be left open is not waited for: the reconciler, who may be asking, ends it later.
   */
  async finished(id: OperationId, signal: AbortSignal = new AbortController().signal): Promise<Operation> {
    for (;;) {
      const grown = this.growth.next(signal);
      const here = this.driven.get(id);
      if (here !== undefined) await Promise.race([here.done, aborted(signal)]);
      const operation = await findOperation(this.ctx.db, id);
      if (operation === undefined) throw new TorporError('not_found', `There is no operation ${id}.`);
      if (operation.outcome === 'succeeded') return operation;
      if (operation.endedAt !== null) throw outcomeError(operation);
      const leftOpen = here !== undefined && !this.isDriving(id);
      if (signal.aborted || leftOpen) throw stillUnderWay(operation);
      await grown;
    }
  }

  private async interrupt(id: OperationId): Promise<void> {
    const driven = this.driven.get(id);
    driven?.controller.abort(new FenceLost(id));
    await driven?.done;
  }

  /** The next request under this key gets the operation that made the wish true, whatever has become of it. */
  private async rememberAlready(tx: Transaction, ask: Ask, key: Key): Promise<void> {
    const done = await findLastDone(tx, ask.sandboxId, MADE_TRUE_BY[ask.kind] ?? []);
    if (done !== undefined) await rememberKey(tx, key, done.id, this.keyExpiry());
  }

  private keyExpiry(): number {
    return this.ctx.clock.now() + this.ctx.settings.idempotencyMs;
  }

  /** Twins that arrive at once collide on a unique index; the later one looks again and finds the earlier. */
  private async once<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    try {
      return await this.ctx.db.transaction(work);
    } catch (thrown) {
      if (!(thrown instanceof ConstraintViolation && thrown.kind === 'unique')) throw thrown;
      return this.ctx.db.transaction(work);
    }
  }
}

function keyOf(
  ask: { readonly caller: Caller; readonly kind: string; readonly request: unknown },
  thing: string,
): Key | undefined {
  const { org, idempotencyKey: key } = ask.caller;
  return key === undefined
    ? undefined
    : { org, route: `${ask.kind} ${thing}`, key, bodyHash: hashBody(ask.request) };
}

/** Which operations make a wish true that may be asked for again. */
const MADE_TRUE_BY: Readonly<Partial<Record<OperationKind, readonly OperationKind[]>>> = {
  pause: ['pause', 'recover'],
  resume: ['create', 'resume', 'rollback'],
  kill: ['kill'],
};

/** Somebody's kill ends whatever is under way; a policy waits for its turn. */
function supersedes(ask: Ask, open: Operation): boolean {
  return ask.kind === 'kill' && ask.reason === 'request' && open.kind !== 'kill';
}

/**
 * Two requests are the same when they would do the same; when to end the new life is settled afterwards.
 * Two forks never are: each caller wants children of its own.
 */
function isTwin(open: Operation, ask: Ask): boolean {
  if (ask.kind === 'fork') return false;
  const essence = ({ timeoutSeconds: _, ...rest }: Readonly<Record<string, unknown>>) => canonical(rest);
  return open.kind === ask.kind && essence(open.request) === essence(ask.request);
}

function transitioning(open: Operation): TorporError {
  return new TorporError('transitioning', `The sandbox is busy: ${open.kind} is under way.`, {
    sandboxId: open.sandboxId,
    operationId: open.id,
    retryAfterMs: 500,
    details: { kind: open.kind, phase: open.phase },
  });
}

function refused(sandbox: Sandbox, wish: Wish): TorporError {
  return refusedBy(sandbox, `The sandbox is ${sandbox.state}, so it cannot be asked to ${wish}.`);
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

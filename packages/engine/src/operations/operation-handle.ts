/** An operation that this server drives, and the transactions it writes for it. */
import { type Context, note } from '../context.ts';
import type { Place } from '../fault-points.ts';
import { ConstraintViolation, type Transaction } from '../ports/database.ts';
import { lockSandbox, type Sandbox } from '../sandbox.ts';
import { FenceLost, holdFence, type Operation, setPhase } from './operation.ts';

export interface OperationHandle {
  readonly operation: Operation;
  /** Fires when the deadline passes or somebody supersedes the operation. */
  readonly signal: AbortSignal;
}

/** One transaction of an operation: the sandbox is locked and the operation proved to be ours. */
export async function commit<T>(
  ctx: Context,
  operation: Operation,
  work: (tx: Transaction, sandbox: Sandbox) => Promise<T>,
): Promise<T> {
  return ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandbox(tx, operation.sandboxId);
    await holdFence(tx, operation);
    return work(tx, sandbox);
  });
}

/**
 * The database did not say whether a commit went through, nor can it be asked. Nothing may be done or
 * undone on a guess: the operation stays open and the reconciler takes it up when the database answers.
 */
export class CommitUnknown extends Error {
  override readonly name = 'Undecided';
}

/**
 * A commit that must not be mistaken for a failure: what follows a failure would harm what it made.
 * `happened` looks, under the sandbox's lock, whether it went through after all.
 */
export async function commitForSure(
  ctx: Context,
  operation: Operation,
  work: (tx: Transaction, sandbox: Sandbox) => Promise<void>,
  happened: (tx: Transaction, sandbox: Sandbox) => Promise<boolean>,
): Promise<void> {
  try {
    await commit(ctx, operation, work);
  } catch (thrown) {
    if (thrown instanceof FenceLost || thrown instanceof ConstraintViolation) throw thrown;
    const done = await ctx.db
      .transaction(async (tx) => happened(tx, await lockSandbox(tx, operation.sandboxId)))
      .catch((cause: unknown) => {
        throw new CommitUnknown(`Nobody knows whether operation ${operation.id} was committed.`, { cause });
      });
    if (!done) throw thrown;
  }
}

/** Writes down how far an operation has come. Losing the fence is found out here at the latest. */
export async function recordPhase(
  ctx: Context,
  operation: Operation,
  name: string,
  detail?: string,
): Promise<void> {
  await commit(ctx, operation, async (tx, sandbox) => {
    await setPhase(tx, operation, name);
    const data = { kind: operation.kind, phase: name, ...(detail === undefined ? {} : { detail }) };
    await note(ctx, tx, sandbox, 'operation.phase', data, { operationId: operation.id });
  });
}

/** Passes a named fault point of this operation. */
export async function passFaultPoint(ctx: Context, operation: Operation, place: Place): Promise<void> {
  await ctx.faults.pass(`${operation.kind}.${place}`);
}

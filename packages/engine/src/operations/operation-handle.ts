/** An operation that this server drives under its fence, and the transactions that it writes for the operation. */
import type { Context } from '../context.ts';
import type { FaultPointName } from '../fault-points.ts';
import { NodeFenced } from '../nodes/membership.ts';
import { ConstraintViolation, type Transaction } from '../ports/database.ts';
import { lockSandbox, type Sandbox } from '../sandbox.ts';
import { FenceLost, type Operation, requireFence } from './operation.ts';
import type { OperationTrace } from './operation-trace.ts';

export interface OperationHandle {
  readonly operation: Operation;
  /** Fires when the deadline passes or another operation supersedes this one. */
  readonly signal: AbortSignal;
  readonly trace: OperationTrace;
}

/** One transaction of an operation: locks the sandbox and throws `FenceLost` unless this server holds the fence. */
export async function fencedTransaction<T>(
  ctx: Context,
  operation: Operation,
  work: (tx: Transaction, sandbox: Sandbox) => Promise<T>,
): Promise<T> {
  return ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandbox(tx, operation.sandboxId);
    await requireFence(tx, operation);
    return work(tx, sandbox);
  });
}

/**
 * The database did not say whether a commit went through, and cannot be asked. Nothing may be done or undone on
 * a guess: the operation stays open, and the reconciler takes it up when the database answers.
 */
export class CommitUnknown extends Error {
  override readonly name = 'CommitUnknown';
}

/** After these errors this server must not end the operation: another server, or the reconciler, does. */
export function leavesOperationOpen(thrown: unknown): thrown is FenceLost | CommitUnknown | NodeFenced {
  return thrown instanceof FenceLost || thrown instanceof CommitUnknown || thrown instanceof NodeFenced;
}

/**
 * A fenced transaction whose success must not be mistaken for a failure: the cleanup after a failure would destroy what
 * the transaction made. After an error `isCommitted` checks, under the sandbox's lock, whether the commit went through.
 */
export async function fencedTransactionChecked<T>(
  ctx: Context,
  operation: Operation,
  work: (tx: Transaction, sandbox: Sandbox) => Promise<T>,
  isCommitted: (tx: Transaction, sandbox: Sandbox) => Promise<boolean>,
): Promise<T> {
  let result: { readonly value: T } | undefined;
  try {
    return await fencedTransaction(ctx, operation, async (tx, sandbox) => {
      const value = await work(tx, sandbox);
      result = { value };
      return value;
    });
  } catch (thrown) {
    if (thrown instanceof FenceLost || thrown instanceof NodeFenced || thrown instanceof ConstraintViolation)
      throw thrown;
    const done = await ctx.db
      .transaction(async (tx) => isCommitted(tx, await lockSandbox(tx, operation.sandboxId)))
      .catch((cause: unknown) => {
        throw new CommitUnknown(`It is unknown whether operation ${operation.id} was committed.`, { cause });
      });
    if (!done || result === undefined) throw thrown;
    return result.value;
  }
}

/** Passes a named fault point of this operation. */
export async function passFaultPoint(
  ctx: Context,
  operation: Operation,
  name: FaultPointName,
): Promise<void> {
  await ctx.faults.pass(`${operation.kind}.${name}`);
}

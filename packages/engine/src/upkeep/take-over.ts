/**
 * Takes over an operation whose server is gone. The state of the sandbox shows how far the operation had come, and so what
 * to do next; the operation's request has the parameters.
 */
import { TorporError } from '@torpor/protocol';
import { startPaused } from '../acts/finish-seal.ts';
import { kill } from '../acts/kill.ts';
import { observe } from '../acts/observe.ts';
import { recover } from '../acts/recover.ts';
import { repair } from '../acts/repair.ts';
import { acceptUnobservedStart, start } from '../acts/start.ts';
import { thawAfterSeal, undoSeal } from '../acts/thaw.ts';
import { findCheckpoint, findSealedBy } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import { recordEvent } from '../ledger/transition.ts';
import { type Operation, takeOver } from '../operations/operation.ts';
import type { OperationHandle } from '../operations/operation-handle.ts';
import type { Queryable } from '../ports/database.ts';
import { lockSandbox, type Sandbox } from '../sandbox.ts';

/** Records this server as the server of the operation, and drives the operation to its end. */
export async function takeOverOperation(ctx: Context, orphan: Operation): Promise<void> {
  const { operation, sandbox } = await ctx.db.transaction(async (tx) => {
    const locked = await lockSandbox(tx, orphan.sandboxId);
    const operation = await takeOver(tx, orphan, ctx.serverId, ctx.clock.now() + ctx.settings.operationMs);
    const data = { kind: operation.kind, found: `its server is gone; the sandbox is ${locked.state}` };
    // The former server may still start an instance. The new generation makes that instance a dead one.
    const starting = locked.state === 'creating' || locked.state === 'resuming';
    const again = starting && (await canStartAgain(tx, locked));
    const generation = again ? locked.generation + 1 : locked.generation;
    const extras = { operationId: operation.id, generation };
    return { operation, sandbox: await recordEvent(ctx, tx, locked, 'operation.taken_over', data, extras) };
  });
  ctx.operations.drive(operation, (handle) => continueFrom(ctx, handle, sandbox));
}

/** A start may consume its checkpoint. Then it cannot be repeated: the result of the first start must be observed. */
async function canStartAgain(db: Queryable, sandbox: Sandbox): Promise<boolean> {
  const base = sandbox.baseId === null ? undefined : await findCheckpoint(db, sandbox.baseId);
  return base === undefined || base.replayable;
}

async function continueFrom(ctx: Context, handle: OperationHandle, sandbox: Sandbox): Promise<void> {
  switch (sandbox.state) {
    case 'creating':
    case 'resuming':
      return (await canStartAgain(ctx.db, sandbox))
        ? start(ctx, handle, sandbox)
        : acceptUnobservedStart(ctx, handle, sandbox);
    case 'running':
      return handle.operation.kind === 'recover'
        ? repair(ctx, handle, sandbox)
        : undoOrFinishSeal(ctx, handle, sandbox);
    case 'pausing':
      return undoOrFinishSeal(ctx, handle, sandbox);
    case 'paused':
      return startPaused(ctx, handle, handle.operation.reason);
    case 'killing':
      return kill(ctx, handle, sandbox);
    case 'killed':
    case 'failed':
    case 'lost':
      // The transaction that writes one of these states also ends the operation.
      throw new TorporError(
        'internal',
        `Operation ${handle.operation.id} is open on a sandbox that has ended.`,
      );
  }
}

/**
 * Before the commit of a seal the operation is undone, unless the instance is proved gone. After the commit of a snapshot
 * only the thaw is left to do.
 */
async function undoOrFinishSeal(ctx: Context, handle: OperationHandle, sandbox: Sandbox): Promise<void> {
  const sealed = await findSealedBy(ctx.db, handle.operation.id);
  if (sandbox.state === 'running' && sealed !== undefined) {
    return thawAfterSeal(ctx, handle.operation, sandbox, sealed.id);
  }
  const found = await observe(ctx, sandbox);
  if (found.is === 'gone') return recover(ctx, handle, sandbox, found);
  const error = new TorporError(
    'unreachable',
    `The server stopped during the ${handle.operation.kind}; it was undone.`,
    {
      sandboxId: sandbox.id,
      hint: 'The sandbox runs on. Ask again.',
    },
  );
  handle.trace.enter('undo');
  return undoSeal(ctx, handle.operation, sandbox, error);
}

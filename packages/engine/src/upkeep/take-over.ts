/**
 * Takes up an operation whose server is gone. The state of the sandbox says how far it had come and so
 * what to do; the operation's own request says with what.
 */
import { TorporError } from '@torpor/protocol';
import { openDoor } from '../acts/door.ts';
import { kill } from '../acts/kill.ts';
import { observe } from '../acts/observe.ts';
import { recover } from '../acts/recover.ts';
import { repair } from '../acts/repair.ts';
import { goOn, undoSeal } from '../acts/seal.ts';
import { adopt, start } from '../acts/start.ts';
import { findCheckpoint, findSealedBy } from '../checkpoints/checkpoint.ts';
import { type Context, note } from '../context.ts';
import type { Desk } from '../operations/desk.ts';
import type { Held } from '../operations/held.ts';
import { type Operation, takeOver } from '../operations/operation.ts';
import type { Queryable } from '../ports/database.ts';
import { lockSandbox, type Sandbox } from '../sandbox.ts';
import { startPaused } from '../verbs/seal-and-start.ts';

/** Makes the operation ours, durably, and drives it to an end. */
export async function takeOverOperation(ctx: Context, desk: Desk, orphan: Operation): Promise<void> {
  const { operation, sandbox } = await ctx.db.transaction(async (tx) => {
    const locked = await lockSandbox(tx, orphan.sandboxId);
    const operation = await takeOver(tx, orphan, ctx.serverId, ctx.clock.now() + ctx.settings.operationMs);
    const data = { kind: operation.kind, found: `its server is gone; the sandbox is ${locked.state}` };
    // What the former owner may still start is named by a generation that this makes a dead one.
    const starting = locked.state === 'creating' || locked.state === 'resuming';
    const again = starting && (await canStartAgain(tx, locked));
    const generation = again ? locked.generation + 1 : locked.generation;
    const extras = { operationId: operation.id, generation };
    return { operation, sandbox: await note(ctx, tx, locked, 'operation.taken_over', data, extras) };
  });
  desk.drive(operation, (held) => continueFrom(ctx, held, sandbox));
}

/** A checkpoint that a start uses up cannot be started again: what came of the first start must be looked at. */
async function canStartAgain(db: Queryable, sandbox: Sandbox): Promise<boolean> {
  const base = sandbox.baseId === null ? undefined : await findCheckpoint(db, sandbox.baseId);
  return base === undefined || base.replayable;
}

async function continueFrom(ctx: Context, held: Held, sandbox: Sandbox): Promise<void> {
  switch (sandbox.state) {
    case 'creating':
    case 'resuming':
      return (await canStartAgain(ctx.db, sandbox)) ? start(ctx, held, sandbox) : adopt(ctx, held, sandbox);
    case 'running':
      return held.operation.kind === 'recover' ? repair(ctx, held, sandbox) : rollBack(ctx, held, sandbox);
    case 'pausing':
      return rollBack(ctx, held, sandbox);
    case 'paused':
      return startPaused(ctx, held, held.operation.reason);
    case 'killing':
      return kill(ctx, held, sandbox);
    case 'killed':
    case 'failed':
    case 'lost':
      // These end the operation in the transaction that writes them.
      throw new TorporError(
        'internal',
        `Operation ${held.operation.id} is open on a sandbox that has ended.`,
      );
  }
}

/**
 * Before the commit of a seal there is only one way: back, unless the instance is proved gone. After the
 * commit of one in place there is only the thaw left to do.
 */
async function rollBack(ctx: Context, held: Held, sandbox: Sandbox): Promise<void> {
  const sealed = await findSealedBy(ctx.db, held.operation.id);
  if (sandbox.state === 'running' && sealed !== undefined) {
    await goOn(ctx, held.operation, sandbox, sealed.id);
    return openDoor(ctx, sandbox.id);
  }
  const found = await observe(ctx, sandbox);
  if (found.is === 'gone') return recover(ctx, held, sandbox, found);
  const error = new TorporError(
    'unreachable',
    `The server stopped during the ${held.operation.kind}; it was undone.`,
    {
      sandboxId: sandbox.id,
      hint: 'The sandbox runs on. Ask again.',
    },
  );
  return undoSeal(ctx, held.operation, sandbox, error);
}

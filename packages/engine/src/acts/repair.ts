/**
 * Makes a sandbox run again that should run, or records why it does not. A repair is an operation of its own, so that
 * it never acts in the middle of another operation.
 */
import { TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { recordEvent } from '../ledger/transition.ts';
import { type Ending, endOperation } from '../operations/operation.ts';
import { fencedTransaction, type OperationHandle } from '../operations/operation-handle.ts';
import type { Sandbox } from '../sandbox.ts';
import { observe } from './observe.ts';
import { recover } from './recover.ts';
import { thaw } from './thaw.ts';
import { openTrafficGate } from './traffic-gate.ts';

export async function repair(ctx: Context, handle: OperationHandle, sandbox: Sandbox): Promise<void> {
  const { operation, trace } = handle;
  trace.enter('observe');
  const found = await observe(ctx, sandbox);
  if (found.is === 'gone') return recover(ctx, handle, sandbox, found);
  const thawed = found.is === 'frozen' && (await thaw(ctx, sandbox));
  if (thawed) await openTrafficGate(ctx, sandbox.id);
  const runs = found.is === 'running' || thawed;
  const why = 'why' in found ? found.why : 'it could not be thawed';
  const ending: Ending = runs
    ? { outcome: 'succeeded', result: {} }
    : { outcome: 'failed', error: new TorporError('unreachable', `The sandbox is ${found.is}: ${why}.`) };
  await fencedTransaction(ctx, operation, async (tx, locked) => {
    await endOperation(tx, operation, ctx.clock.now(), ending);
    if (!thawed) return;
    const data = {
      found: 'it was frozen although no operation was sealing it',
      did: 'thawed it',
      previousState: locked.state,
    };
    const change = { evidence: 'running', observedAt: ctx.clock.now() } as const;
    await recordEvent(ctx, tx, locked, 'reconcile.repaired', data, { operationId: operation.id, change });
  });
}

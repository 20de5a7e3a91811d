/** How far the replication of checkpoints is. */
import type { Context } from '../context.ts';
import { countWaiting } from '../replication/queue.ts';

/** Undefined without a store. */
export async function replication(
  ctx: Context,
): Promise<{ readonly store: string; readonly waiting: number } | undefined> {
  if (ctx.replicator === undefined) return undefined;
  return { store: ctx.replicator.replicas.url, waiting: await countWaiting(ctx.db) };
}

/** Begins a checkpoint in the store. */
import type { CheckpointId } from '@torpor/protocol';
import type { Context } from '../context.ts';
import type { MemoryForm, Staging } from '../ports/checkpoint-store.ts';
import { findCheckpoint } from './checkpoint.ts';

/** `base` is the checkpoint whose pages the memory may refer to. */
export async function stageCheckpoint(
  ctx: Pick<Context, 'store' | 'node' | 'db'>,
  id: CheckpointId,
  base: CheckpointId | null,
  signal: AbortSignal,
): Promise<Staging> {
  const [staging, memoryForm] = await Promise.all([ctx.store.stage(id, signal), memoryFormFor(ctx, base)]);
  return { ...staging, memoryForm };
}

/** A node of an earlier version may start the checkpoint. Pages that are known to be damaged must get no other user. */
async function memoryFormFor(
  { node, db }: Pick<Context, 'node' | 'db'>,
  base: CheckpointId | null,
): Promise<MemoryForm> {
  if (node.hasEarlierVersions) return 'whole';
  const { faults = [] } = (base === null ? undefined : await findCheckpoint(db, base)) ?? {};
  return faults.some(({ part }) => part === 'memory') ? 'own pages' : 'shared pages';
}

/** In which form the memory of a new checkpoint is sealed. */
import type { CheckpointId } from '@torpor/protocol';
import type { Context } from '../context.ts';
import type { MemoryForm } from '../ports/checkpoint-store.ts';
import { findCheckpoint } from './checkpoint.ts';

/** `base` is the checkpoint whose pages the memory may refer to. */
export async function memoryFormFor(
  { node, db }: Pick<Context, 'node' | 'db'>,
  base: CheckpointId | null,
): Promise<MemoryForm> {
  // A node of an earlier version may start the checkpoint.
  if (node.hasEarlierVersions) return 'whole';
  const checkpoint = base === null ? undefined : await findCheckpoint(db, base);
  // Pages that are known to be damaged must get no other user.
  const isDamaged = checkpoint?.faults.some(({ part }) => part === 'memory') === true;
  return isDamaged ? 'own pages' : 'shared pages';
}

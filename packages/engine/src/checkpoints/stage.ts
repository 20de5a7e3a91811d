/** Begins a checkpoint in the store. */
import type { CheckpointId } from '@torpor/protocol';
import type { Context } from '../context.ts';
import type { Staging } from '../ports/checkpoint-store.ts';

/** A node of an earlier version may start the checkpoint: then its memory has the form that the earlier version reads. */
export async function stageCheckpoint(
  { store, node }: Pick<Context, 'store' | 'node'>,
  id: CheckpointId,
  signal: AbortSignal,
): Promise<Staging> {
  return {
    ...(await store.stage(id, signal)),
    memoryForm: node.hasEarlierVersions ? 'whole' : 'shared pages',
  };
}

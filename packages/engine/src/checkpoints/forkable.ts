/** Whether others than its own sandbox may start from a checkpoint. */
import { TorporError } from '@torpor/protocol';
import { type Context, runtimeOf } from '../context.ts';
import type { Checkpoint } from './checkpoint.ts';

export function requireForkable(ctx: Context, checkpoint: Checkpoint): void {
  const { id, sandboxId, replayable } = checkpoint;
  if (sandboxId === null || (replayable && runtimeOf(ctx, checkpoint).capabilities().fork)) return;
  throw new TorporError(
    'capability_unsupported',
    `Checkpoint ${id} can only be resumed by its own sandbox.`,
    {
      checkpointId: id,
    },
  );
}

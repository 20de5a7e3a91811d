/** Verify: every byte of a checkpoint is read. */
import type { CheckpointId, CheckpointView } from '@torpor/protocol';
import { getCheckpoint } from '../checkpoints/checkpoint.ts';
import { verifyCheckpoint } from '../checkpoints/checks.ts';
import type { Context } from '../context.ts';
import { checkpoint } from '../queries/checkpoints.ts';

/** Reads all bytes of the checkpoint and records what was found. */
export async function verify(ctx: Context, org: string, id: CheckpointId): Promise<CheckpointView> {
  await verifyCheckpoint(ctx, await getCheckpoint(ctx.db, id, org));
  return checkpoint(ctx, org, id);
}

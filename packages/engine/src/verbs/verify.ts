/** Verify: every byte of a checkpoint is read. */
import type { CheckpointId, VerifiedCheckpointView } from '@torpor/protocol';
import { getCheckpoint } from '../checkpoints/checkpoint.ts';
import { checkParts, verifyCheckpoint } from '../checkpoints/checks.ts';
import type { Context } from '../context.ts';
import { checkpoint } from '../queries/checkpoints.ts';

/** Reads all bytes of the checkpoint and records what was found. */
export async function verify(ctx: Context, org: string, id: CheckpointId): Promise<VerifiedCheckpointView> {
  const sealed = await getCheckpoint(ctx.db, id, org);
  await verifyCheckpoint(ctx, sealed);
  const { unusableMemory } = await checkParts(ctx, sealed);
  return { ...(await checkpoint(ctx, org, id)), unusableMemory };
}

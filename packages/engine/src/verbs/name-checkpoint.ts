/** Names a checkpoint: a named one is kept until a caller deletes it. One write, outside of operations. */
import { type Actor, type CheckpointId, type CheckpointView, TorporError } from '@torpor/protocol';
import { getCheckpoint, getSealed, nameCheckpoint as writeName } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import { recordEvent } from '../ledger/transition.ts';
import { checkpoint } from '../queries/checkpoints.ts';
import { lockSandbox } from '../sandbox.ts';

/** A checkpoint may have several names, each unique among those of its sandbox. The same name again changes nothing. */
export async function nameCheckpoint(
  ctx: Context,
  org: string,
  id: CheckpointId,
  name: string,
  by?: Actor,
): Promise<CheckpointView> {
  const { sandboxId } = await getCheckpoint(ctx.db, id, org);
  if (sandboxId === null) {
    throw new TorporError('conflict', `Checkpoint ${id} belongs to a template, not to a sandbox.`, {
      checkpointId: id,
      hint: 'The name of the template is its name.',
    });
  }
  await ctx.db.transaction(async (tx) => {
    // Deletions take the same lock, so the checkpoint cannot be deleted between the check and the write.
    const sandbox = await lockSandbox(tx, sandboxId);
    const { replayable } = await getSealed(tx, id, org);
    if (!replayable) {
      throw new TorporError(
        'conflict',
        `Checkpoint ${id} is used up by the next start and cannot be named.`,
        {
          checkpointId: id,
        },
      );
    }
    const [known] = await tx.query(
      'SELECT 1 AS one FROM checkpoint_names WHERE checkpoint_id = $1 AND name = $2',
      [id, name],
    );
    if (known !== undefined) return;
    await writeName(tx, sandboxId, id, name, ctx.clock.now());
    await tx.query(
      'UPDATE checkpoints SET kept = 1, expires_at = NULL, expiry_announced_at = NULL WHERE id = $1',
      [id],
    );
    await recordEvent(
      ctx,
      tx,
      sandbox,
      'checkpoint.named',
      { checkpointId: id, name },
      { operationId: null, by },
    );
  });
  return checkpoint(ctx, org, id);
}

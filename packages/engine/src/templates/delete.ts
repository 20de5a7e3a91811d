/** Deletes a template. Sandboxes made from it run on: the checkpoints that they depend on stay as long as they need them. */
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { findCheckpoint } from '../checkpoints/checkpoint.ts';
import { deleteIfUnreferenced, removeBytes } from '../checkpoints/deletion.ts';
import type { Context } from '../context.ts';
import { getTemplate, notOwn } from './template.ts';

export async function deleteTemplate(ctx: Context, org: string, name: string): Promise<void> {
  const template = await getTemplate(ctx, org, name);
  if (template.org !== org) {
    throw notOwn(template);
  }
  const gone = await ctx.db.transaction((tx) =>
    tx.query<{ checkpoint_id: CheckpointId | null }>(
      "DELETE FROM templates WHERE org = $1 AND name = $2 AND state <> 'preparing' RETURNING checkpoint_id",
      [org, name],
    ),
  );
  const [row] = gone;
  if (row === undefined) {
    throw new TorporError('transitioning', `The template "${name}" is still being prepared.`, {
      hint: 'Wait until it is ready, or has failed. Then delete it.',
    });
  }
  if (row.checkpoint_id !== null) await deleteItsCheckpoint(ctx, row.checkpoint_id);
}

/** Deletes a checkpoint that was made for the template. A checkpoint of a sandbox is left to the sandbox's retention. */
async function deleteItsCheckpoint(ctx: Context, id: CheckpointId): Promise<void> {
  const checkpoint = await findCheckpoint(ctx.db, id);
  if (checkpoint?.sandboxId !== null || !(await deleteIfUnreferenced(ctx, id, 'unreferenced'))) return;
  ctx.background.run(`removing checkpoint ${id}`, () =>
    removeBytes(ctx, { ...checkpoint, state: 'deleted' }),
  );
}

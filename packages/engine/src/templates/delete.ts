/** The end of a template. Sandboxes made from it go on: what they stand on stays for as long as they need it. */
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { findCheckpoint } from '../checkpoints/checkpoint.ts';
import { deleteIfUnreferenced, removeBytes } from '../checkpoints/retention.ts';
import type { Context } from '../context.ts';
import { getTemplate } from './template.ts';

export async function deleteTemplate(ctx: Context, org: string, name: string): Promise<void> {
  const template = await getTemplate(ctx, org, name);
  if (template.org !== org) {
    throw new TorporError('forbidden', `The template "${name}" is built in, and stays.`);
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
  if (row.checkpoint_id !== null) await letGo(ctx, row.checkpoint_id);
}

/** One that was made for the template is of no use to anybody else; a sandbox's own goes its usual way. */
async function letGo(ctx: Context, id: CheckpointId): Promise<void> {
  const checkpoint = await findCheckpoint(ctx.db, id);
  if (checkpoint?.sandboxId !== null || !(await deleteIfUnreferenced(ctx, id, 'unreferenced'))) return;
  ctx.background.run(`removing checkpoint ${id}`, () =>
    removeBytes(ctx, { ...checkpoint, state: 'deleted' }),
  );
}

/** Marks templates as failed whose server died while it prepared them. The row keeps the reason. */
import { TorporError } from '@torpor/protocol';
import { markDeleted } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import { deleteFailed, listAbandoned, setFailed, type Template } from '../templates/template.ts';

export async function failAbandonedTemplates(ctx: Context): Promise<void> {
  const { templateMs, operationMs, idempotencyMs } = ctx.settings;
  const now = ctx.clock.now();
  for (const template of await listAbandoned(ctx.db, ctx.node.name, now, now - templateMs - operationMs)) {
    await failTemplate(ctx, template);
  }
  await ctx.db.transaction((tx) => deleteFailed(tx, now - idempotencyMs));
}

/** The bytes are removed by the next round of the collector. */
async function failTemplate(ctx: Context, template: Template): Promise<void> {
  const { name, writingId } = template;
  const error = new TorporError('unreachable', `The server died while the template "${name}" was prepared.`, {
    hint: 'Create the template again.',
  });
  await ctx.db.transaction(async (tx) => {
    // The template may have become ready since it was listed.
    if ((await setFailed(tx, template, error)) && writingId !== null)
      await markDeleted(tx, writingId, ctx.clock.now());
  });
}

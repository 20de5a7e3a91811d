/** Publishes a template: other organisations may create sandboxes from it. Sandboxes that exist do not change. */
import { TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { firstCheckpoint, getTemplate, notOwn, setDefinition, type Template } from './template.ts';

export async function setPublic(
  ctx: Context,
  org: string,
  name: string,
  isPublic: boolean,
): Promise<Template> {
  const template = await getTemplate(ctx, org, name);
  if (template.org !== org) throw notOwn(template);
  await firstCheckpoint(ctx.db, template);
  const definition = { ...template.definition, public: isPublic };
  if (await ctx.db.transaction((tx) => setDefinition(tx, template, definition)))
    return { ...template, definition };
  throw new TorporError('conflict', `The template "${name}" was replaced meanwhile.`, { hint: 'Try again.' });
}

/** The runtimes and templates that sandboxes can be made from. */
import type { RuntimeView, TemplateView } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { getTemplate, listTemplates } from '../templates/template.ts';
import { viewTemplate } from '../view.ts';

export function runtimes(ctx: Context): RuntimeView[] {
  return [...ctx.runtimes.values()].map((runtime) => ({
    name: runtime.name,
    default: runtime.name === ctx.defaultRuntime,
    capabilities: runtime.capabilities(),
  }));
}

export async function templates(ctx: Context, org: string): Promise<TemplateView[]> {
  return (await listTemplates(ctx.db, org)).map(viewTemplate);
}

export async function template(ctx: Context, org: string, name: string): Promise<TemplateView> {
  return viewTemplate(await getTemplate(ctx, org, name));
}

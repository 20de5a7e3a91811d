/** The runtimes and templates that sandboxes can be made from. */
import {
  type CheckpointId,
  type RuntimeView,
  type TemplateLogLine,
  type TemplateView,
  TorporError,
} from '@torpor/protocol';
import type { Context } from '../context.ts';
import {
  type Definition,
  findBuiltIn,
  firstCheckpoint,
  getTemplate,
  listTemplates,
} from '../templates/template.ts';
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

/** What sandboxes of a ready template start with: for builds that begin with it. Its environment may hold secrets. */
export async function templateDefinition(
  ctx: Context,
  org: string,
  name: string,
): Promise<Definition & { readonly checkpointId: CheckpointId }> {
  const found = await getTemplate(ctx, org, name);
  const { id } = await firstCheckpoint(ctx.db, found);
  return { ...found.definition, checkpointId: id };
}

/** What happened while the template was prepared, since this server started; oldest first. */
export async function templateLog(
  ctx: Context,
  org: string,
  name: string,
): Promise<readonly TemplateLogLine[]> {
  const found = await getTemplate(ctx, org, name);
  return ctx.templateLog.read(found.org, name);
}

/** A built-in template of the default runtime, also when a template of an organisation hides it there. */
export async function builtInTemplate(ctx: Context, name: string): Promise<TemplateView> {
  const found = await findBuiltIn(ctx.db, ctx.defaultRuntime, name);
  if (found !== undefined) return viewTemplate(found);
  throw new TorporError('not_found', `There is no built-in template "${name}".`);
}

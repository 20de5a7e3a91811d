/** The runtimes and templates that sandboxes can be made from. */
import type { CreateTemplateRequest, RuntimeView, TemplateView } from '@torpor/protocol';
import type { Context } from '../context.ts';
import type { Caller } from '../operations/operations.ts';
import { nameCheckpointAsTemplate } from '../templates/name-checkpoint.ts';
import {
  type ArchiveTemplate,
  prepareTemplate as prepare,
  requireCustomTemplates,
} from '../templates/prepare.ts';
import { refuseTakenTemplateName } from '../templates/taken-name.ts';
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

/** Throws what refuses a template whatever its archive holds: for callers that have not sent the archive yet. */
export async function refuseTemplate(
  ctx: Context,
  org: string,
  { name, runtime }: Pick<ArchiveTemplate, 'name' | 'runtime'>,
): Promise<void> {
  requireCustomTemplates(ctx, runtime);
  await refuseTakenTemplateName(ctx.db, org, name);
}

export async function prepareTemplate(
  ctx: Context,
  caller: Caller,
  request: ArchiveTemplate,
): Promise<TemplateView> {
  return viewTemplate(await prepare(ctx, caller, request));
}

export async function nameTemplate(
  ctx: Context,
  org: string,
  request: CreateTemplateRequest,
  taken: 'refuse' | 'replace' = 'refuse',
): Promise<TemplateView> {
  return viewTemplate(await nameCheckpointAsTemplate(ctx, org, request, taken));
}

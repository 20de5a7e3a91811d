/** Templates that callers make. */
import type { CreateTemplateRequest, TemplateView } from '@torpor/protocol';
import type { Context } from '../context.ts';
import type { Caller } from '../operations/operations.ts';
import {
  type CheckpointNames,
  copyTemplate as copy,
  nameCheckpointAsTemplate,
  nameCheckpointAsTemplates,
} from '../templates/name-checkpoint.ts';
import {
  type ArchiveTemplate,
  prepareTemplate as prepare,
  requireCustomTemplates,
  type TemplateRequest,
} from '../templates/prepare.ts';
import { setPublic } from '../templates/publish.ts';
import { refuseTakenTemplateName } from '../templates/template-names.ts';
import { viewTemplate } from '../view.ts';

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
  request: TemplateRequest,
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

/** Several names for one checkpoint, all or none. */
export function nameTemplates(ctx: Context, org: string, request: CheckpointNames): Promise<void> {
  return nameCheckpointAsTemplates(ctx, org, request);
}

export async function copyTemplate(
  ctx: Context,
  org: string,
  name: string,
  copies: readonly string[],
): Promise<TemplateView> {
  return viewTemplate(await copy(ctx, org, name, copies));
}

/** Whether other organisations may create sandboxes from it. */
export async function publishTemplate(
  ctx: Context,
  org: string,
  name: string,
  isPublic: boolean,
): Promise<TemplateView> {
  return viewTemplate(await setPublic(ctx, org, name, isPublic));
}

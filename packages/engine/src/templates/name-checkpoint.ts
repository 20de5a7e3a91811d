/** Names a checkpoint as a template. The checkpoint is kept as long as the template exists. */
import { type CreateTemplateRequest, TorporError } from '@torpor/protocol';
import { getSealed } from '../checkpoints/checkpoint.ts';
import { inspectWhole } from '../checkpoints/checks.ts';
import { requireForkable } from '../checkpoints/forkable.ts';
import type { Context } from '../context.ts';
import { ConstraintViolation } from '../ports/database.ts';
import { findSandbox } from '../sandbox.ts';
import { definitionOf, type Template } from './template.ts';
import { freeName, insertWithFreeName } from './template-names.ts';

export async function nameCheckpointAsTemplate(
  ctx: Context,
  org: string,
  request: CreateTemplateRequest,
  taken: 'refuse' | 'replace' = 'refuse',
): Promise<Template> {
  const checkpoint = await getSealed(ctx.db, request.from, org);
  const about = { checkpointId: checkpoint.id };
  if (checkpoint.org !== org) {
    throw new TorporError('conflict', 'The checkpoint belongs to a built-in template already.', about);
  }
  requireForkable(ctx, checkpoint);
  await inspectWhole(ctx, checkpoint);
  // Services and environment are those that a fork would get, unless the caller names others.
  const source = checkpoint.sandboxId === null ? undefined : await findSandbox(ctx.db, checkpoint.sandboxId);
  const template: Template = {
    org,
    name: request.name,
    runtime: checkpoint.runtime,
    definition: {
      ...definitionOf(request),
      services: request.services ?? source?.config.services.map(({ jobId: _, ...service }) => service) ?? [],
      env: request.env ?? source?.config.env ?? {},
      user: request.user ?? source?.config.user,
      workdir: request.workdir ?? source?.config.workdir,
    },
    state: 'ready',
    checkpointId: checkpoint.id,
    writingId: null,
    owner: null,
    phase: null,
    error: null,
    createdAt: ctx.clock.now(),
  };
  try {
    await ctx.db.transaction(async (tx) => {
      if (taken === 'replace') await freeName(tx, org, request.name);
      await insertWithFreeName(tx, template);
    });
  } catch (thrown) {
    if (!(thrown instanceof ConstraintViolation && thrown.kind === 'foreign_key')) throw thrown;
    throw new TorporError('expired', `Checkpoint ${checkpoint.id} was deleted.`, about);
  }
  return template;
}

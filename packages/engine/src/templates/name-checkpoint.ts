/** A checkpoint becomes a template: it gets a name, and is kept for as long as it has it. */
import { type CreateTemplateRequest, TorporError } from '@torpor/protocol';
import { getSealed } from '../checkpoints/checkpoint.ts';
import { requireForkable } from '../checkpoints/forkable.ts';
import { inspectWhole } from '../checkpoints/soundness.ts';
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
    throw new TorporError('conflict', 'It is the checkpoint of a built-in template already.', about);
  }
  requireForkable(ctx, checkpoint);
  await inspectWhole(ctx, checkpoint);
  // What it would be given as a fork, unless the caller says otherwise.
  const source = checkpoint.sandboxId === null ? undefined : await findSandbox(ctx.db, checkpoint.sandboxId);
  const template: Template = {
    org,
    name: request.name,
    runtime: checkpoint.runtime,
    definition: {
      ...definitionOf(request),
      services: request.services ?? source?.config.services.map(({ jobId: _, ...service }) => service) ?? [],
      env: request.env ?? source?.config.env ?? {},
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

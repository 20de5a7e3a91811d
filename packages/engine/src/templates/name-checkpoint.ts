/** Names a checkpoint as one template or several. The checkpoint is kept as long as one of them exists. */
import { type CreateTemplateRequest, TorporError } from '@torpor/protocol';
import { type Checkpoint, getSealed } from '../checkpoints/checkpoint.ts';
import { inspectWhole } from '../checkpoints/checks.ts';
import { requireForkable } from '../checkpoints/forkable.ts';
import type { Context } from '../context.ts';
import { ConstraintViolation, type Transaction } from '../ports/database.ts';
import { isReplicated } from '../replication/fetch.ts';
import { findSandbox } from '../sandbox.ts';
import { definitionOf, findOwn, firstCheckpoint, getTemplate, notOwn, type Template } from './template.ts';
import { freeName, insertWithFreeName } from './template-names.ts';

export interface CheckpointNames extends Omit<CreateTemplateRequest, 'name' | 'replace'> {
  readonly names: readonly string[];
  readonly taken: 'refuse' | 'replace';
  /** Part of the transaction that writes the names. */
  readonly alsoWrite?: (tx: Transaction) => Promise<void>;
}

export async function nameCheckpointAsTemplate(
  ctx: Context,
  org: string,
  { name, replace: _, ...request }: CreateTemplateRequest,
  taken: 'refuse' | 'replace' = 'refuse',
): Promise<Template> {
  await nameCheckpointAsTemplates(ctx, org, { ...request, names: [name], taken });
  return getTemplate(ctx, org, name);
}

/** All names are written in one transaction. */
export async function nameCheckpointAsTemplates(
  ctx: Context,
  org: string,
  request: CheckpointNames,
): Promise<void> {
  const checkpoint = await getSealed(ctx.db, request.from, org);
  const about = { checkpointId: checkpoint.id };
  if (checkpoint.org !== org) {
    throw new TorporError('conflict', 'The checkpoint belongs to a built-in template already.', about);
  }
  requireForkable(ctx, checkpoint);
  await inspectIfHere(ctx, checkpoint);
  // A fork would get the same services, environment and limits, unless the caller names others.
  const source = checkpoint.sandboxId === null ? undefined : await findSandbox(ctx.db, checkpoint.sandboxId);
  const template: Omit<Template, 'name'> = {
    org,
    runtime: checkpoint.runtime,
    definition: {
      ...definitionOf(request),
      services: request.services ?? source?.config.services.map(({ jobId: _, ...service }) => service) ?? [],
      env: request.env ?? source?.config.env ?? {},
      user: request.user ?? source?.config.user,
      workdir: request.workdir ?? source?.config.workdir,
      resources: request.resources ?? source?.config.resources ?? {},
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
      for (const name of request.names) {
        const definition = { ...template.definition, public: await isPublished(tx, org, name) };
        if (request.taken === 'replace') await freeName(tx, org, name);
        await insertWithFreeName(tx, { ...template, definition, name });
      }
      await request.alsoWrite?.(tx);
    });
  } catch (thrown) {
    if (!(thrown instanceof ConstraintViolation && thrown.kind === 'foreign_key')) throw thrown;
    throw new TorporError('expired', `Checkpoint ${checkpoint.id} was deleted.`, about);
  }
}

/** What another node has, and the store has not, can only be inspected there. A start does that. */
async function inspectIfHere(ctx: Context, checkpoint: Checkpoint): Promise<void> {
  const isOnlyElsewhere =
    !isReplicated(checkpoint) && (await ctx.directory.locateCheckpoint(checkpoint.id)).is === 'elsewhere';
  if (!isOnlyElsewhere) await inspectWhole(ctx, checkpoint);
}

/** A new version of a published template is published too: it has the name already, or the name without a tag. */
async function isPublished(tx: Transaction, org: string, name: string): Promise<boolean> {
  const [base = name] = name.split(':');
  for (const one of new Set([name, base]))
    if ((await findOwn(tx, org, one))?.definition.public === true) return true;
  return false;
}

/** Gives a template that is ready further names. A name that another template has moves to this one. */
export async function copyTemplate(
  ctx: Context,
  org: string,
  name: string,
  copies: readonly string[],
): Promise<Template> {
  const source = await getTemplate(ctx, org, name);
  if (source.org !== org) throw notOwn(source);
  await firstCheckpoint(ctx.db, source);
  await ctx.db.transaction(async (tx) => {
    for (const copy of copies) {
      if (copy === name) continue;
      await freeName(tx, org, copy);
      await insertWithFreeName(tx, { ...source, name: copy, createdAt: ctx.clock.now() });
    }
  });
  return source;
}

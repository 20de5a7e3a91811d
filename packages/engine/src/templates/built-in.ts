/** The templates that every server has. The runtime makes the checkpoint once; every create starts from it. */

import { type CheckpointId, TorporError } from '@torpor/protocol';
import { sealInStore } from '../acts/seal.ts';
import {
  findCheckpoint,
  insertWriting,
  markDeleted,
  markSealed,
  SHARED_ORG,
  toSealedCheckpoint,
} from '../checkpoints/checkpoint.ts';
import { stageCheckpoint } from '../checkpoints/stage.ts';
import type { Context } from '../context.ts';
import type { Transaction } from '../ports/database.ts';
import type { Runtime, SealedCheckpoint, TemplateSpec } from '../ports/runtime.ts';
import { withTimeout } from '../with-timeout.ts';
import {
  type Definition,
  definitionOf,
  findBuiltIn,
  insertTemplate,
  replaceCheckpoint,
  setBuiltInPhase,
} from './template.ts';

export function builtInSpec(
  name: string,
  previous: SealedCheckpoint | null = null,
  progress: TemplateSpec['progress'] = async () => {},
): TemplateSpec {
  return { name, root: { kind: 'builtin', previous }, services: [], env: {}, resources: {}, progress };
}

/** Makes the template's checkpoint if there is none. Of two concurrent servers one wins, and the other uses its checkpoint. */
export async function ensureTemplate(ctx: Context, runtime: Runtime, name: string): Promise<void> {
  for (let tries = 1; (await findBuiltIn(ctx.db, runtime.name, name)) === undefined; tries += 1) {
    try {
      await prepareBuiltIn(ctx, runtime, builtInSpec(name), (tx, id, definition) =>
        insertBuiltIn(ctx, tx, runtime.name, name, id, definition),
      );
    } catch (thrown) {
      // The machine has changed meanwhile, for example because packages are being installed.
      const mayPass = TorporError.from(thrown).code === 'checkpoint_incompatible';
      if (!mayPass || tries === MOST_TRIES) throw thrown;
      ctx.report('a built-in template is prepared again', { name, error: thrown });
    }
  }
}

const MOST_TRIES = 5;

/**
 * Prepares a built-in template again when the runtime says that it is outdated. Sandboxes that depend on the old
 * checkpoint keep it; nothing waits for the new one.
 */
export async function renewTemplate(ctx: Context, runtime: Runtime, name: string): Promise<void> {
  const template = await findBuiltIn(ctx.db, runtime.name, name);
  if (template === undefined || template.checkpointId === null) return;
  const old = await findCheckpoint(ctx.db, template.checkpointId);
  // Another node prepares it again by what it finds on its own machine: two nodes must not do so in turns.
  if (old === undefined || old.node !== ctx.node.name) return;
  const previous = toSealedCheckpoint(ctx.store, old);
  if (!(await runtime.isOutdated?.(previous))) return;
  const progress = (phase: string) => setTemplatePhase(ctx, runtime.name, name, phase);
  await prepareBuiltIn(ctx, runtime, builtInSpec(name, previous, progress), (tx, id, definition) =>
    replaceCheckpoint(tx, template, id, definition),
  ).finally(() => setTemplatePhase(ctx, runtime.name, name, null));
}

/** Shows how far the next version of a built-in template is; null when none is being made. */
export async function setTemplatePhase(
  ctx: Context,
  runtime: string,
  name: string,
  phase: string | null,
): Promise<void> {
  ctx.templateLog.add(SHARED_ORG, name, ctx.clock.now(), phase ?? 'done');
  await ctx.db.transaction((tx) => setBuiltInPhase(tx, runtime, name, phase));
}

/** `commit` returns whether the template now refers to the checkpoint; otherwise the checkpoint is deleted. */
async function prepareBuiltIn(
  ctx: Context,
  runtime: Runtime,
  spec: TemplateSpec,
  commit: (tx: Transaction, id: CheckpointId, definition: Definition) => Promise<boolean>,
): Promise<void> {
  const id = ctx.ids.next('ckpt');
  const row = {
    id,
    org: SHARED_ORG,
    sandboxId: null,
    generation: null,
    seq: 0,
    parentId: null,
    runtime: runtime.name,
    operationId: null,
    node: ctx.node.name,
  };
  await ctx.db.transaction((tx) => insertWriting(tx, row, ctx.clock.now()));
  const sealed = await withTimeout(
    ctx.clock,
    ctx.settings.templateMs,
    `Preparing template "${spec.name}"`,
    async (signal) => {
      const staging = await stageCheckpoint(ctx, id, signal);
      const captured = await runtime.prepareTemplate(spec, staging, signal);
      return sealInStore(ctx, staging, captured, { id: null, baseId: null, runtime: runtime.name }, signal);
    },
  ).catch(async (thrown: unknown) => {
    await ctx.db.transaction((tx) => markDeleted(tx, id, ctx.clock.now()));
    throw thrown;
  });
  const definition: Definition = { ...definitionOf({}), root: sealed.captured.templateRoot ?? null };
  await ctx.db.transaction(async (tx) => {
    const now = ctx.clock.now();
    await markSealed(tx, id, sealed, { recovered: false, kept: false, expiresAt: null }, now);
    if (!(await commit(tx, id, definition))) await markDeleted(tx, id, now);
  });
}

function insertBuiltIn(
  ctx: Context,
  tx: Transaction,
  runtime: string,
  name: string,
  id: CheckpointId,
  definition: Definition,
): Promise<boolean> {
  return insertTemplate(tx, {
    org: SHARED_ORG,
    name,
    runtime,
    definition,
    state: 'ready',
    checkpointId: id,
    writingId: null,
    owner: null,
    phase: null,
    error: null,
    createdAt: ctx.clock.now(),
  });
}

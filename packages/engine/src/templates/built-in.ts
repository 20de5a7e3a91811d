/** The templates that every server has. The runtime makes the checkpoint once; every create starts from it. */
import type { CheckpointId } from '@torpor/protocol';
import { sealInStore } from '../acts/seal.ts';
import {
  findCheckpoint,
  forRuntime,
  insertWriting,
  markDeleted,
  markSealed,
  SHARED_ORG,
} from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import type { Transaction } from '../ports/database.ts';
import type { Runtime, TemplateSpec } from '../ports/runtime.ts';
import { withTimeout } from '../with-timeout.ts';
import { definitionOf, findBuiltIn, insertTemplate, replaceCheckpoint } from './template.ts';

export function builtInSpec(name: string): TemplateSpec {
  return { name, root: { kind: 'builtin' }, services: [], env: {}, progress: async () => {} };
}

/** Makes the template's checkpoint if there is none. Of two concurrent servers one wins, and the other uses its checkpoint. */
export async function ensureTemplate(ctx: Context, runtime: Runtime, name: string): Promise<void> {
  if ((await findBuiltIn(ctx.db, runtime.name, name)) !== undefined) return;
  await prepareBuiltIn(ctx, runtime, name, (tx, id) => insertBuiltIn(ctx, tx, runtime.name, name, id));
}

/**
 * Prepares a built-in template again when the runtime says that it is outdated. Sandboxes that depend on the old
 * checkpoint keep it; nothing waits for the new one.
 */
export async function renewTemplate(ctx: Context, runtime: Runtime, name: string): Promise<void> {
  const { checkpointId } = (await findBuiltIn(ctx.db, runtime.name, name)) ?? { checkpointId: null };
  const old = checkpointId === null ? undefined : await findCheckpoint(ctx.db, checkpointId);
  if (old === undefined || !(await runtime.isOutdated?.(forRuntime(ctx.store, old)))) return;
  await prepareBuiltIn(ctx, runtime, name, (tx, id) => replaceCheckpoint(tx, runtime.name, name, old.id, id));
}

/** `commit` returns whether the template now refers to the checkpoint; otherwise the checkpoint is deleted. */
async function prepareBuiltIn(
  ctx: Context,
  runtime: Runtime,
  name: string,
  commit: (tx: Transaction, id: CheckpointId) => Promise<boolean>,
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
  };
  await ctx.db.transaction((tx) => insertWriting(tx, row, ctx.clock.now()));
  const sealed = await withTimeout(
    ctx.clock,
    ctx.settings.operationMs,
    `Preparing template "${name}"`,
    async (signal) => {
      const staging = await ctx.store.stage(id, signal);
      const captured = await runtime.prepareTemplate(builtInSpec(name), staging, signal);
      return sealInStore(ctx, staging, captured, { id: null, baseId: null, runtime: runtime.name }, signal);
    },
  ).catch(async (thrown: unknown) => {
    await ctx.db.transaction((tx) => markDeleted(tx, id, ctx.clock.now()));
    throw thrown;
  });
  await ctx.db.transaction(async (tx) => {
    const now = ctx.clock.now();
    await markSealed(tx, id, sealed, { recovered: false, kept: false, expiresAt: null }, now);
    if (!(await commit(tx, id))) await markDeleted(tx, id, now);
  });
}

function insertBuiltIn(
  ctx: Context,
  tx: Transaction,
  runtime: string,
  name: string,
  id: CheckpointId,
): Promise<boolean> {
  return insertTemplate(tx, {
    org: SHARED_ORG,
    name,
    runtime,
    definition: definitionOf({}),
    state: 'ready',
    checkpointId: id,
    writingId: null,
    owner: null,
    phase: null,
    error: null,
    createdAt: ctx.clock.now(),
  });
}

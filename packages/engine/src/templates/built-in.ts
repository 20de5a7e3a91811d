/** The templates that every server has: the runtime makes the bytes, once; every create starts from them. */
import { sealCaptured } from '../acts/seal.ts';
import { EVERYBODY, insertWriting, markDeleted, markSealed, type Sealed } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import type { Transaction } from '../ports/database.ts';
import type { Runtime, TemplateOrder } from '../ports/runtime.ts';
import { within } from '../within.ts';
import { definitionOf, findBuiltIn, insertTemplate, type Template } from './template.ts';

export function builtInOrder(name: string): TemplateOrder {
  return { name, root: { kind: 'builtin' }, services: [], env: {}, progress: async () => {} };
}

/** Makes the template's checkpoint if it is not there. Two servers at once: one wins, the other uses it. */
export async function ensureTemplate(ctx: Context, runtime: Runtime, name: string): Promise<void> {
  if ((await findBuiltIn(ctx.db, runtime.name, name)) !== undefined) return;
  const id = ctx.ids.next('ckpt');
  const row = {
    id,
    org: EVERYBODY,
    sandboxId: null,
    generation: null,
    seq: 0,
    parentId: null,
    runtime: runtime.name,
    operationId: null,
  };
  await ctx.db.transaction((tx) => insertWriting(tx, row, ctx.clock.now()));
  const sealed = await within(
    ctx.clock,
    ctx.settings.operationMs,
    `Preparing template "${name}"`,
    async (signal) => {
      const staging = await ctx.store.stage(id, signal);
      const captured = await runtime.prepareTemplate(builtInOrder(name), staging, signal);
      return sealCaptured(ctx, staging, captured, { id: null, baseId: null, runtime: runtime.name }, signal);
    },
  ).catch(async (thrown: unknown) => {
    await ctx.db.transaction((tx) => markDeleted(tx, id, ctx.clock.now()));
    throw thrown;
  });
  await ctx.db.transaction((tx) => commitBuiltIn(ctx, tx, runtime.name, name, id, sealed));
}

async function commitBuiltIn(
  ctx: Context,
  tx: Transaction,
  runtime: string,
  name: string,
  id: NonNullable<Template['checkpointId']>,
  sealed: Sealed,
): Promise<void> {
  const now = ctx.clock.now();
  await markSealed(tx, id, sealed, { recovered: false, kept: false, expiresAt: null }, now);
  const isFirst = await insertTemplate(tx, {
    org: EVERYBODY,
    name,
    runtime,
    definition: definitionOf({}),
    state: 'ready',
    checkpointId: id,
    writingId: null,
    owner: null,
    phase: null,
    error: null,
    createdAt: now,
  });
  if (!isFirst) await markDeleted(tx, id, now);
}

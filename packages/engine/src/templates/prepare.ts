/**
 * Makes a template from a root file system that a user uploaded. The runtime unpacks, boots and seals it once.
 *
 * The template's row is written first, so that the name is taken, callers can follow the progress, and what a dead server
 * leaves behind is found through the row. The upload is untrusted: a template that cannot be made leaves nothing behind
 * except the reason, and that only when the caller stopped waiting.
 */
import { type CheckpointId, type TemplateDefinition, TorporError } from '@torpor/protocol';
import { sealInStore } from '../acts/seal.ts';
import {
  findCheckpoint,
  insertWriting,
  markDeleted,
  markSealed,
  type SealResult,
} from '../checkpoints/checkpoint.ts';
import { removeBytes } from '../checkpoints/deletion.ts';
import { type Context, runtimeOf } from '../context.ts';
import { refusalForDiskSpace } from '../disk/disk-space.ts';
import type { Caller } from '../operations/operations.ts';
import { requireQuota } from '../orgs/quota.ts';
import type { Captured, Runtime } from '../ports/runtime.ts';
import { withTimeout } from '../with-timeout.ts';
import {
  definitionOf,
  deletePreparing,
  getTemplate,
  setFailed,
  setPreparing,
  setReady,
  type Template,
} from './template.ts';
import { insertWithFreeName } from './template-names.ts';

export interface ArchiveTemplate extends TemplateDefinition {
  readonly name: string;
  readonly runtime?: string | undefined;
  /** A file on this machine, which does not change until the template is made. */
  readonly archive: string;
}

/** Resolves when the template is ready. The work continues when `caller.signal` fires: the caller only stops waiting. */
export function prepareTemplate(ctx: Context, caller: Caller, request: ArchiveTemplate): Promise<Template> {
  const made = prepare(ctx, caller, request);
  ctx.background.run(`preparing template "${request.name}"`, () => made.then(ignore, ignore));
  return made;
}

function ignore(): void {}

export function requireCustomTemplates(ctx: Context, name = ctx.defaultRuntime): Runtime {
  const runtime = runtimeOf(ctx, { runtime: name });
  if (runtime.capabilities().customTemplates) return runtime;
  throw new TorporError(
    'capability_unsupported',
    `The runtime "${name}" cannot run a root file system of yours, so it has no templates from archives.`,
    { hint: 'Name a checkpoint as a template instead, or use a runtime that can: GET /v1/runtimes.' },
  );
}

async function prepare(ctx: Context, caller: Caller, request: ArchiveTemplate): Promise<Template> {
  const runtime = requireCustomTemplates(ctx, request.runtime);
  const writingId = ctx.ids.next('ckpt');
  const template: Template = {
    org: caller.org,
    name: request.name,
    runtime: runtime.name,
    definition: definitionOf(request),
    state: 'preparing',
    checkpointId: null,
    writingId,
    owner: ctx.serverId,
    phase: null,
    error: null,
    createdAt: ctx.clock.now(),
  };
  await claim(ctx, template, writingId);
  try {
    const sealed = await make(ctx, runtime, template, writingId, request.archive);
    await commitReady(ctx, template, writingId, sealed);
  } catch (thrown) {
    const error = ctx.stopping.aborted ? stopped(template, thrown) : TorporError.from(thrown);
    await undo(ctx, template, writingId, error, caller.signal?.aborted === true || ctx.stopping.aborted);
    throw error;
  }
  return getTemplate(ctx, template.org, template.name);
}

/** Writes the checkpoint's row before any of its bytes exist. */
async function claim(ctx: Context, template: Template, id: CheckpointId): Promise<void> {
  const { org, runtime } = template;
  const full = await refusalForDiskSpace(ctx);
  if (full !== undefined) throw full;
  await ctx.db.transaction(async (tx) => {
    await requireQuota(tx, org, { checkpoint: true });
    const about = { sandboxId: null, generation: null, seq: 0, parentId: null, operationId: null };
    await insertWriting(tx, { id, org, runtime, ...about }, ctx.clock.now());
    await insertWithFreeName(tx, template);
  });
}

async function make(
  ctx: Context,
  runtime: Runtime,
  template: Template,
  id: CheckpointId,
  archive: string,
): Promise<SealResult> {
  const { name, definition } = template;
  const { services, env } = definition;
  const progress = async (phase: string) => {
    const isOurs = await ctx.db.transaction((tx) => setPreparing(tx, template, phase));
    if (!isOurs) throw takenOver(template);
  };
  const order = { name, root: { kind: 'archive', path: archive }, services, env, progress } as const;
  let preparing: Promise<Captured> | undefined;
  try {
    return await withTimeout(
      ctx.clock,
      ctx.settings.templateMs,
      `Preparing template "${name}"`,
      async (signal) => {
        const staging = await ctx.store.stage(id, signal);
        preparing = runtime.prepareTemplate(order, staging, signal);
        const captured = await preparing;
        await progress('sealing');
        return sealInStore(ctx, staging, captured, { id: null, baseId: null, runtime: runtime.name }, signal);
      },
      ctx.stopping,
    );
  } catch (thrown) {
    // The runtime must have stopped writing before the bytes are removed.
    await withTimeout(ctx.clock, ctx.settings.callMs, 'Giving up a template', async () => preparing).catch(
      ignore,
    );
    throw thrown;
  }
}

async function commitReady(
  ctx: Context,
  template: Template,
  id: CheckpointId,
  sealed: SealResult,
): Promise<void> {
  await ctx.db.transaction(async (tx) => {
    const kept = { recovered: false, kept: false, expiresAt: null };
    await markSealed(tx, id, sealed, kept, ctx.clock.now());
    if (!(await setReady(tx, template))) throw takenOver(template);
  });
}

/** When this fails, a later round finds the leftovers by their row. */
async function undo(
  ctx: Context,
  template: Template,
  id: CheckpointId,
  error: TorporError,
  isUnattended: boolean,
): Promise<void> {
  if (isUnattended) ctx.report('a template could not be made', { name: template.name, error });
  try {
    await ctx.db.transaction(async (tx) => {
      if (isUnattended) await setFailed(tx, template, error);
      else await deletePreparing(tx, template);
      await markDeleted(tx, id, ctx.clock.now());
    });
    const checkpoint = await findCheckpoint(ctx.db, id);
    if (checkpoint !== undefined) await removeBytes(ctx, checkpoint);
  } catch (thrown) {
    ctx.report('giving up a template failed', { name: template.name, checkpointId: id, error: thrown });
  }
}

function takenOver({ name }: Template): TorporError {
  return new TorporError('conflict', `Another server marked the template "${name}" as abandoned.`, {
    hint: 'Create the template again.',
  });
}

function stopped({ name }: Template, cause: unknown): TorporError {
  return new TorporError('unreachable', `The server stopped while the template "${name}" was prepared.`, {
    hint: 'Create the template again.',
    cause,
  });
}

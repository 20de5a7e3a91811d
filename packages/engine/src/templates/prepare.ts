/**
 * Makes a template from a root file system that a user uploaded, or from a container image. The runtime unpacks, boots and
 * seals it once.
 *
 * The template's row is written first, so that the name is taken, callers can follow the progress, and what a dead server
 * leaves behind is found through the row. Both are untrusted: a template that cannot be made leaves nothing behind
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
import { stageCheckpoint } from '../checkpoints/stage.ts';
import { type Context, runtimeOf } from '../context.ts';
import { refusalForDiskSpace } from '../disk/disk-space.ts';
import type { Caller } from '../operations/operations.ts';
import { requireQuota } from '../orgs/quota.ts';
import type { ImageSource } from '../ports/image.ts';
import type { Captured, Runtime, TemplateSpec } from '../ports/runtime.ts';
import { withTimeout } from '../with-timeout.ts';
import { withImage } from './image-definition.ts';
import {
  type Definition,
  definitionOf,
  deletePreparing,
  getTemplate,
  setFailed,
  setPreparing,
  setReady,
  type Template,
} from './template.ts';
import { insertWithFreeName } from './template-names.ts';

interface PreparedTemplate extends TemplateDefinition {
  readonly name: string;
  readonly runtime?: string | undefined;
}

export interface ArchiveTemplate extends PreparedTemplate {
  /** A file on this machine, which does not change until the template is made. */
  readonly archive: string;
}

interface ImageTemplate extends PreparedTemplate {
  readonly image: ImageSource;
  /** Whether ENTRYPOINT and CMD of the image run as a service. */
  readonly entrypoint?: boolean | undefined;
}

export type TemplateRequest = ArchiveTemplate | ImageTemplate;

/** Resolves when the template is ready. The work continues when `caller.signal` fires: the caller only stops waiting. */
export function prepareTemplate(ctx: Context, caller: Caller, request: TemplateRequest): Promise<Template> {
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

async function prepare(ctx: Context, caller: Caller, request: TemplateRequest): Promise<Template> {
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
    const made = await make(ctx, runtime, template, writingId, request);
    await commitReady(ctx, template, writingId, made);
    logLine(ctx, template, 'ready');
  } catch (thrown) {
    const error = ctx.stopping.aborted ? stopped(template, thrown) : TorporError.from(thrown);
    logLine(ctx, template, `failed: ${error.message}`);
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
    const about = {
      sandboxId: null,
      generation: null,
      seq: 0,
      parentId: null,
      operationId: null,
      node: ctx.node.name,
    };
    await insertWriting(tx, { id, org, runtime, ...about }, ctx.clock.now());
    await insertWithFreeName(tx, template);
  });
}

async function make(
  ctx: Context,
  runtime: Runtime,
  template: Template,
  id: CheckpointId,
  request: TemplateRequest,
): Promise<Made> {
  const { name } = template;
  const progress = async (phase: string) => {
    logLine(ctx, template, phase);
    const isOurs = await ctx.db.transaction((tx) => setPreparing(tx, template, phase));
    if (!isOurs) throw takenOver(template);
  };
  let preparing: Promise<Captured> | undefined;
  try {
    return await withTimeout(
      ctx.clock,
      ctx.settings.templateMs,
      `Preparing template "${name}"`,
      async (signal) => {
        const { root, definition } = await resolve(template.definition, request, progress, signal);
        const { services, env, user, workdir, resources } = definition;
        const staging = await stageCheckpoint(ctx, id, signal);
        const spec = { name, root, services, env, user, workdir, resources, progress };
        preparing = runtime.prepareTemplate(spec, staging, signal);
        const captured = await preparing;
        await progress('sealing');
        const owner = { id: null, baseId: null, runtime: runtime.name };
        return { definition, sealed: await sealInStore(ctx, staging, captured, owner, signal) };
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

interface Made {
  readonly sealed: SealResult;
  /** With what the image says of itself. */
  readonly definition: Definition;
}

/** What the template is made from, and what its sandboxes get. The caller's definition goes before the image's. */
async function resolve(
  definition: Definition,
  request: TemplateRequest,
  progress: TemplateSpec['progress'],
  signal: AbortSignal,
): Promise<{ readonly root: TemplateSpec['root']; readonly definition: Definition }> {
  if ('archive' in request) return { root: { kind: 'archive', path: request.archive }, definition };
  await progress('reading the image');
  const image = await request.image.open(signal);
  const root = { kind: 'image', image } as const;
  return { root, definition: withImage(definition, image, request.entrypoint ?? false) };
}

async function commitReady(
  ctx: Context,
  template: Template,
  id: CheckpointId,
  { sealed, definition }: Made,
): Promise<void> {
  await ctx.db.transaction(async (tx) => {
    const kept = { recovered: false, kept: false, expiresAt: null };
    await markSealed(tx, id, sealed, kept, ctx.clock.now());
    const { templateRoot: root = null, templateUser: user } = sealed.captured;
    const complete = { ...definition, root, user: definition.user ?? user };
    if (!(await setReady(tx, template, complete))) throw takenOver(template);
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

function logLine(ctx: Context, { org, name }: Template, text: string): void {
  ctx.templateLog.add(org, name, ctx.clock.now(), text);
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

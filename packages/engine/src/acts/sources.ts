/**
 * What a sandbox may be started from, best first. The list holds only what the caller's policy allows: to fall back
 * further is the caller's decision.
 */
import {
  type CheckpointMode,
  type ErrorCode,
  type Fallback,
  type Loss,
  type SourceKind,
  TorporError,
} from '@torpor/protocol';
import { type Checkpoint, findCheckpoint, getSealed, requireSealed } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import { type Operation, requestedCheckpoint, requestedFallback } from '../operations/operation.ts';
import type { Sandbox } from '../sandbox.ts';
import { findTemplate, firstCheckpoint } from '../templates/template.ts';

export interface StartSource {
  readonly checkpoint: Checkpoint;
  /** `memory` means the memory on top of the files. */
  readonly mode: CheckpointMode;
  readonly kind: SourceKind;
  /** True for the memory of a checkpoint whose files are the next source. */
  readonly hasFilesNext: boolean;
  /** What a start from this source loses, beside what the runtime reports. */
  readonly lost: readonly Loss[];
}

const FILES_ONLY = { mode: 'files', kind: 'files', hasFilesNext: false } as const;

/** A safeguard against a damaged chain; merged chains are far shorter. */
const MAX_CHAIN_LENGTH = 64;

/** Faults of one source, after which the next source may be tried. */
const SOURCE_FAULTS: ReadonlySet<ErrorCode> = new Set([
  'checkpoint_missing',
  'checkpoint_corrupt',
  'checkpoint_incompatible',
]);

export function isSourceFault(thrown: unknown): thrown is TorporError {
  return thrown instanceof TorporError && SOURCE_FAULTS.has(thrown.code);
}

export async function sourcesOf(
  ctx: Context,
  sandbox: Sandbox,
  operation: Operation,
): Promise<StartSource[]> {
  const sources = await allSourcesOf(ctx, sandbox, operation);
  // `mode` of other operations describes the seal, so only a resume is checked.
  const filesOnly = operation.kind === 'resume' && operation.request.mode === 'files';
  if (!filesOnly) return sources;
  return sources
    .filter(({ mode }, at) => mode === 'memory' || sources[at - 1]?.mode !== 'memory')
    .map((source) => (source.mode === 'memory' ? { ...source, ...FILES_ONLY } : source));
}

async function allSourcesOf(ctx: Context, sandbox: Sandbox, operation: Operation): Promise<StartSource[]> {
  const wanted = await wantedCheckpoint(ctx, sandbox, operation);
  const policy = requestedFallback(operation) ?? sandbox.config.fallback;
  if (sandbox.state === 'creating') {
    // A template may be a checkpoint of a sandbox; it counts as a template when the caller named the template.
    const isTemplate = wanted.sandboxId === null || requestedCheckpoint(operation) === undefined;
    return sourcesFrom(wanted, policy, [], isTemplate ? 'template' : undefined);
  }
  // The files of the last run are lost already; to continue without them needs the caller's permission.
  const lostBefore: Loss[] =
    requestedCheckpoint(operation) === undefined && sandbox.lost.includes('files') ? ['files'] : [];
  if (lostBefore.length > 0 && !policy.includes('previous')) {
    throw new TorporError(
      'checkpoint_missing',
      `What the sandbox had written since checkpoint ${wanted.id} is gone: ${sandbox.reason ?? 'its files were lost'}.`,
      {
        sandboxId: sandbox.id,
        checkpointId: wanted.id,
        hint: 'Allow the fallback "previous" to go on from that checkpoint.',
      },
    );
  }
  const sources = sourcesFrom(wanted, policy, lostBefore);
  if (policy.includes('previous')) {
    for (const earlier of await ancestors(ctx, wanted)) {
      if (earlier.sandboxId === sandbox.id) sources.push(...sourcesFrom(earlier, ['files'], ['files']));
    }
  }
  if (policy.includes('template')) {
    const template = await findTemplate(ctx, sandbox.org, sandbox.template ?? 'base', sandbox.runtime);
    // A deleted template does not prevent the other sources.
    if (template?.state === 'ready') {
      const first = await firstCheckpoint(ctx.db, template);
      sources.push(...sourcesFrom(first, ['files'], ['files', 'processes'], 'template'));
    }
  }
  return sources;
}

/** Throws unless the checkpoint can be started more than once and was made by this runtime. */
export function requireStartableBy(checkpoint: Checkpoint, runtime: string): void {
  if (checkpoint.replayable && checkpoint.runtime === runtime) return;
  throw new TorporError(
    'capability_unsupported',
    `The sandbox cannot be started from checkpoint ${checkpoint.id}.`,
    { checkpointId: checkpoint.id },
  );
}

async function wantedCheckpoint(ctx: Context, sandbox: Sandbox, operation: Operation): Promise<Checkpoint> {
  const requested = requestedCheckpoint(operation);
  if (requested !== undefined) return getSealed(ctx.db, requested, sandbox.org);
  // The first checkpoint may belong to another organisation, which has published it as a template.
  const id = sandbox.state === 'creating' ? sandbox.baseId : sandbox.checkpointId;
  const own = id === null ? undefined : await findCheckpoint(ctx.db, id);
  if (own === undefined) throw nothingToStartFrom(sandbox);
  return requireSealed(own);
}

export function nothingToStartFrom(sandbox: Sandbox): TorporError {
  return new TorporError('internal', `Sandbox ${sandbox.id} has nothing to start from.`, {
    sandboxId: sandbox.id,
  });
}

function sourcesFrom(
  checkpoint: Checkpoint,
  policy: readonly Fallback[],
  lost: readonly Loss[],
  kind?: SourceKind,
): StartSource[] {
  const files: StartSource = { checkpoint, mode: 'files', kind: kind ?? 'files', hasFilesNext: false, lost };
  if (!checkpoint.parts.memory) return [files];
  const hasFilesNext = policy.includes('files');
  const memory: StartSource = { checkpoint, mode: 'memory', kind: kind ?? 'memory', hasFilesNext, lost };
  return hasFilesNext ? [memory, files] : [memory];
}

/** The sealed ancestors of this checkpoint, nearest first. */
async function ancestors(ctx: Context, checkpoint: Checkpoint): Promise<Checkpoint[]> {
  const chain: Checkpoint[] = [];
  let id = checkpoint.parentId;
  for (let i = 0; id !== null && i < MAX_CHAIN_LENGTH; i++) {
    const parent = await findCheckpoint(ctx.db, id);
    if (parent === undefined) break;
    if (parent.state === 'sealed') chain.push(parent);
    id = parent.parentId;
  }
  return chain;
}

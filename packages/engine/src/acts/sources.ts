/**
 * What a sandbox may be started from, best first. Only what the caller's policy allows is in the list:
 * falling back further than that is a decision that is not ours.
 */
import { type Fallback, type Loss, type SourceKind, TorporError } from '@torpor/protocol';
import { type Checkpoint, findCheckpoint, getSealed } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import { type Operation, requestedCheckpoint, requestedFallback } from '../operations/operation.ts';
import type { Sandbox } from '../sandbox.ts';
import { findTemplate, firstCheckpoint } from '../templates/template.ts';

export interface Source {
  readonly checkpoint: Checkpoint;
  readonly use: 'memory' | 'files';
  readonly kind: SourceKind;
  /** This is the memory of a checkpoint whose files are the next source. */
  readonly hasFilesNext: boolean;
  /** What is lost by using this one, beside what the runtime says. */
  readonly lost: readonly Loss[];
}

const FILES_ONLY = { use: 'files', kind: 'files', hasFilesNext: false } as const;

/** A safeguard against a damaged chain, far above what merging leaves. */
const LONGEST_CHAIN = 64;

export async function sourcesOf(ctx: Context, sandbox: Sandbox, operation: Operation): Promise<Source[]> {
  const sources = await allSourcesOf(ctx, sandbox, operation);
  // A fork's or a snapshot's request speaks of something else by this word.
  const filesOnly = operation.kind === 'resume' && operation.request.mode === 'files';
  if (!filesOnly) return sources;
  return sources
    .filter(({ use }, at) => use === 'memory' || sources[at - 1]?.use !== 'memory')
    .map((source) => (source.use === 'memory' ? { ...source, ...FILES_ONLY } : source));
}

async function allSourcesOf(ctx: Context, sandbox: Sandbox, operation: Operation): Promise<Source[]> {
  const wanted = await wantedCheckpoint(ctx, sandbox, operation);
  const policy = requestedFallback(operation) ?? sandbox.config.fallback;
  if (sandbox.state === 'creating') {
    // A template may be a checkpoint of some sandbox; what counts is that it was asked for by its name.
    const isTemplate = wanted.sandboxId === null || requestedCheckpoint(operation) === undefined;
    return waysToUse(wanted, policy, [], isTemplate ? 'template' : undefined);
  }
  // The files of the last run are gone already; going on without them needs the caller's leave.
  const behind: Loss[] =
    requestedCheckpoint(operation) === undefined && sandbox.lost.includes('files') ? ['files'] : [];
  if (behind.length > 0 && !policy.includes('previous')) {
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
  const sources = waysToUse(wanted, policy, behind);
  if (policy.includes('previous')) {
    for (const earlier of await ancestors(ctx, wanted)) {
      if (earlier.sandboxId === sandbox.id) sources.push(...waysToUse(earlier, ['files'], ['files']));
    }
  }
  if (policy.includes('template')) {
    const template = await findTemplate(ctx, sandbox.org, sandbox.template ?? 'base', sandbox.runtime);
    // One that was deleted is no reason not to try everything else.
    if (template?.state === 'ready') {
      const first = await firstCheckpoint(ctx.db, template);
      sources.push(...waysToUse(first, ['files'], ['files', 'processes'], 'template'));
    }
  }
  return sources;
}

/** Whether a sandbox of this runtime may be started from the checkpoint at another's wish than its own pause. */
export function requireStartable(checkpoint: Checkpoint, runtime: string): void {
  if (checkpoint.replayable && checkpoint.runtime === runtime) return;
  throw new TorporError(
    'capability_unsupported',
    `The sandbox cannot be started from checkpoint ${checkpoint.id}.`,
    { checkpointId: checkpoint.id },
  );
}

async function wantedCheckpoint(ctx: Context, sandbox: Sandbox, operation: Operation): Promise<Checkpoint> {
  const id =
    requestedCheckpoint(operation) ?? (sandbox.state === 'creating' ? sandbox.baseId : sandbox.checkpointId);
  if (id === null) throw nothingToStartFrom(sandbox);
  return getSealed(ctx.db, id, sandbox.org);
}

export function nothingToStartFrom(sandbox: Sandbox): TorporError {
  return new TorporError('internal', `Sandbox ${sandbox.id} has nothing to start from.`, {
    sandboxId: sandbox.id,
  });
}

function waysToUse(
  checkpoint: Checkpoint,
  policy: readonly Fallback[],
  lost: readonly Loss[],
  kind?: SourceKind,
): Source[] {
  const files: Source = { checkpoint, use: 'files', kind: kind ?? 'files', hasFilesNext: false, lost };
  if (!checkpoint.parts.memory) return [files];
  const hasFilesNext = policy.includes('files');
  const memory: Source = { checkpoint, use: 'memory', kind: kind ?? 'memory', hasFilesNext, lost };
  return hasFilesNext ? [memory, files] : [memory];
}

/** The sealed checkpoints before this one, nearest first. */
async function ancestors(ctx: Context, checkpoint: Checkpoint): Promise<Checkpoint[]> {
  const chain: Checkpoint[] = [];
  let id = checkpoint.parentId;
  for (let i = 0; id !== null && i < LONGEST_CHAIN; i++) {
    const parent = await findCheckpoint(ctx.db, id);
    if (parent === undefined) break;
    if (parent.state === 'sealed') chain.push(parent);
    id = parent.parentId;
  }
  return chain;
}

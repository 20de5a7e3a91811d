/** What a checkpoint of this runtime is at the provider: the `needs` of its record. */
import type { Captured, SealedCheckpoint } from '@torpor/engine';
import { type CheckpointId, type CheckpointMode, TorporError } from '@torpor/protocol';

export type ExternalCheckpoint =
  /** A template of the provider. Every start creates a new sandbox. */
  | { readonly is: 'template'; readonly template: string }
  /** A paused sandbox of the provider. The next start resumes it and uses the checkpoint up. */
  | { readonly is: 'paused'; readonly providerId: string }
  /** A snapshot of the provider. Every start creates a new sandbox. */
  | { readonly is: 'snapshot'; readonly snapshotId: string };

/** What the engine records about a new checkpoint. */
export function captured(checkpoint: ExternalCheckpoint, mode: CheckpointMode): Captured {
  return {
    parts: { files: true, memory: mode === 'memory' },
    needs: needsOf(checkpoint),
    dependsOn: [],
    external: { location: locationOf(checkpoint), bytes: null, replayable: checkpoint.is !== 'paused' },
  };
}

function needsOf(checkpoint: ExternalCheckpoint): Readonly<Record<string, string>> {
  switch (checkpoint.is) {
    case 'template':
      return { template: checkpoint.template };
    case 'paused':
      return { paused: checkpoint.providerId };
    case 'snapshot':
      return { snapshot: checkpoint.snapshotId };
  }
}

/** Tells operators where the checkpoint is. */
function locationOf(checkpoint: ExternalCheckpoint): string {
  switch (checkpoint.is) {
    case 'template':
      return `e2b:template/${checkpoint.template}`;
    case 'paused':
      return `e2b:sandbox/${checkpoint.providerId}`;
    case 'snapshot':
      return `e2b:snapshot/${checkpoint.snapshotId}`;
  }
}

/** Undefined for a checkpoint that was never sealed and has no needs. */
export function parseNeeds({ needs }: Pick<SealedCheckpoint, 'needs'>): ExternalCheckpoint | undefined {
  const { template, paused, snapshot } = needs;
  if (typeof paused === 'string') return { is: 'paused', providerId: paused };
  if (typeof snapshot === 'string') return { is: 'snapshot', snapshotId: snapshot };
  if (typeof template === 'string') return { is: 'template', template };
  return undefined;
}

export function requireNeeds(checkpoint: SealedCheckpoint): ExternalCheckpoint {
  const parsed = parseNeeds(checkpoint);
  if (parsed !== undefined) return parsed;
  throw new TorporError('checkpoint_corrupt', 'The record of the checkpoint does not say what it is.', {
    checkpointId: checkpoint.id,
  });
}

export function missing(checkpointId: CheckpointId): TorporError {
  return new TorporError('checkpoint_missing', 'The provider no longer has the checkpoint.', {
    checkpointId,
  });
}

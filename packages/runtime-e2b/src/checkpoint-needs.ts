/** What a checkpoint of this runtime is at the provider, as its `needs` say it. */
import type { SealedCheckpoint } from '@torpor/engine';
import { type CheckpointId, TorporError } from '@torpor/protocol';

export type Kept =
  /** One of the provider's own, from which anything may start. */
  | { readonly is: 'template'; readonly template: string }
  /** A sandbox that sleeps. The next start is that sandbox, and the checkpoint is used up. */
  | { readonly is: 'sleeper'; readonly providerId: string }
  /** A snapshot: every start makes a new sandbox of it. */
  | { readonly is: 'snapshot'; readonly snapshotId: string };

export function needsOf(kept: Kept): Readonly<Record<string, string>> {
  switch (kept.is) {
    case 'template':
      return { template: kept.template };
    case 'sleeper':
      return { paused: kept.providerId };
    case 'snapshot':
      return { snapshot: kept.snapshotId };
  }
}

/** For people: where it is. */
export function locationOf(kept: Kept): string {
  switch (kept.is) {
    case 'template':
      return `e2b:template/${kept.template}`;
    case 'sleeper':
      return `e2b:sandbox/${kept.providerId}`;
    case 'snapshot':
      return `e2b:snapshot/${kept.snapshotId}`;
  }
}

/** Undefined for one that was never sealed, and so says nothing. */
export function keptAs({ needs }: Pick<SealedCheckpoint, 'needs'>): Kept | undefined {
  const { template, paused, snapshot } = needs;
  if (typeof paused === 'string') return { is: 'sleeper', providerId: paused };
  if (typeof snapshot === 'string') return { is: 'snapshot', snapshotId: snapshot };
  if (typeof template === 'string') return { is: 'template', template };
  return undefined;
}

export function missing(checkpointId: CheckpointId): TorporError {
  return new TorporError('checkpoint_missing', 'The provider does not have it any more.', { checkpointId });
}

export function corrupt(checkpointId: CheckpointId): TorporError {
  return new TorporError('checkpoint_corrupt', 'The checkpoint does not say what it is.', { checkpointId });
}

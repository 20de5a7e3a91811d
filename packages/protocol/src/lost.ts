/** What every answer about a lost sandbox says, so that nobody has to search its events for the cause. */
import type { ErrorDetails } from './errors.ts';
import type { LostCheckpoint } from './views.ts';

export function lostDetails({
  reason,
  lostCheckpoint,
}: {
  readonly reason: string | null;
  readonly lostCheckpoint: LostCheckpoint | null;
}): Pick<ErrorDetails, 'checkpointId' | 'details'> {
  const told = reason === null ? {} : { reason };
  if (lostCheckpoint === null) return { details: { state: 'lost', ...told } };
  const { checkpointId, location, code } = lostCheckpoint;
  return { checkpointId, details: { state: 'lost', ...told, location, code } };
}

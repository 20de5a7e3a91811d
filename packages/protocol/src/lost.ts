/** The cause of a lost sandbox, which every response about it repeats, so that a client need not search its events. */
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

/** How long paused sandboxes are kept without being used. */
import type { OrgView } from '@torpor/sdk';
import { duration } from './units.ts';

/** Seconds; null: for ever. */
export type Retention = OrgView['deletePausedAfterSeconds'];

export function retentionText(retention: Retention): string {
  if (retention === null) return 'for ever';
  return retention === 'default' ? 'as the server is set' : duration(retention * 1_000);
}

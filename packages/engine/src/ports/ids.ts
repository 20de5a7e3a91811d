/** The port to new ids; tests pass their own. */
import { randomBytes } from 'node:crypto';
import { type Id, type IdKind, makeId } from '@torpor/protocol';

export interface Ids {
  next<K extends IdKind>(kind: K): Id<K>;
}

export const randomIds: Ids = { next: (kind) => makeId(kind, randomBytes) };

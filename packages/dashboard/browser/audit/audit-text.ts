/** Entries of the audit, for people. */
import type { AuditEntry } from '@torpor/sdk';

type Reason = NonNullable<AuditEntry['operation']>['reason'];

/** What the server did without a key. */
const WITHOUT_KEY: Readonly<Record<Reason, string>> = {
  request: 'a visit, a build, a session or the server',
  timeout: 'the server: the lifetime ended',
  idle: 'the server: nobody used it',
  evacuation: 'the server: its machine was drained',
  rollback: 'the server: for a rollback',
  snapshot: 'the server: for a snapshot',
  reconcile: 'the server: a repair',
  expired: 'the server: the retention ended',
};

/** Who asked for the change. `names`: the name of each key of the organisation. */
export function actorText({ by, operation }: AuditEntry, names: ReadonlyMap<string, string>): string {
  if (by === null) return WITHOUT_KEY[operation?.reason ?? 'request'];
  return `${names.get(by.keyId) ?? by.keyId}, user ${by.subject}`;
}

/** Whether each of the words is in the type, the sandbox, the actor or the position of the entry. */
export function hasWords({ type, sandboxId, position }: AuditEntry, actor: string, words: string): boolean {
  const text = `${type} ${sandboxId} ${actor} ${position}`.toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

/** The events of an organisation with the key that asked for each: what an auditor reads. */
import type { AuditEntry, OperationKind, Reason } from '@torpor/protocol';
import { actorOf } from '../operations/operation.ts';
import type { Queryable, Row } from '../ports/database.ts';
import { toEvent } from './read.ts';

/**
 * Oldest first, after a position. Phases are left out: they are steps of one operation, and no caller requested them. Rows of
 * operations and events are never deleted, so the entries of a sandbox outlive the sandbox.
 */
export async function readAudit(
  db: Queryable,
  org: string,
  afterPosition: number,
  limit: number,
): Promise<AuditEntry[]> {
  const rows = await db.query(
    `SELECT e.id, e.sandbox_id, e.seq, e.position, e.at, e.type, e.previous_state, e.state, e.generation,
       e.checkpoint_id, e.operation_id, e.data, o.kind, o.reason,
       COALESCE(e.key_id, o.key_id) AS key_id, COALESCE(e.subject, o.subject) AS subject
     FROM events e LEFT JOIN operations o ON o.id = e.operation_id
     WHERE e.org = $1 AND e.position > $2 AND e.type <> 'operation.phase'
     ORDER BY e.position LIMIT $3`,
    [org, afterPosition, limit],
  );
  return rows.map((row) => ({ ...toEvent(row), by: actorOf(row), operation: operationOf(row) }));
}

function operationOf({ kind, reason }: Row): AuditEntry['operation'] {
  return kind === null ? null : { kind: kind as OperationKind, reason: reason as Reason };
}

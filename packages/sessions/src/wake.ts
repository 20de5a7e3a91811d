/** Rows of a session's wakes: one row for each wake; the oldest are deleted first. */
import type { Queryable, Row, Transaction } from '@torpor/engine';
import type { SandboxId, SessionChange, SessionId, SessionWake, Source, TorporError } from '@torpor/protocol';

const COLUMNS = `ordinal, at, did, why, message, former_sandbox_id, sandbox_id, checkpoint_id, source_kind, lost, lost_since,
  thread_kept, error_code, error_message, times, last_at, recovered_at`;

function toWake(row: Row): SessionWake {
  return {
    ordinal: row['ordinal'],
    at: row['at'],
    did: row['did'],
    why: row['why'],
    message: row['message'],
    formerSandboxId: row['former_sandbox_id'],
    sandboxId: row['sandbox_id'],
    source:
      row['source_kind'] === null ? null : { checkpointId: row['checkpoint_id'], kind: row['source_kind'] },
    lost: JSON.parse(String(row['lost'])),
    lostSince: row['lost_since'],
    threadKept: row['thread_kept'] === 1,
    error: row['error_code'] === null ? null : { code: row['error_code'], message: row['error_message'] },
    times: row['times'],
    lastAt: row['last_at'],
    recoveredAt: row['recovered_at'],
  } as SessionWake;
}

/** Oldest first. */
export async function listWakes(
  db: Queryable,
  sessionId: SessionId,
  afterOrdinal: number,
  limit: number,
): Promise<SessionWake[]> {
  const rows = await db.query(
    `SELECT ${COLUMNS} FROM session_wakes WHERE session_id = $1 AND ordinal > $2 ORDER BY ordinal LIMIT $3`,
    [sessionId, afterOrdinal, limit],
  );
  return rows.map(toWake);
}

type NewWake = Omit<SessionWake, 'ordinal' | 'times' | 'lastAt' | 'recoveredAt'>;

/** The caller holds the lock of the session's row, so that two wakes never get the same number. */
async function insertWake(
  tx: Transaction,
  sessionId: SessionId,
  wake: NewWake,
  cause: string | null,
  kept: number,
): Promise<void> {
  const [row] = await tx.query<{ ordinal: number }>(
    `INSERT INTO session_wakes (session_id, ordinal, at, did, why, message, former_sandbox_id, sandbox_id,
       checkpoint_id, source_kind, lost, lost_since, thread_kept, error_code, error_message, cause, times, last_at)
     SELECT $1, COALESCE(MAX(ordinal), 0) + 1, CAST($2 AS {integer}), $3, $4, $5, $6, $7, $8, $9, $10,
       CAST($11 AS {integer}), CAST($12 AS {integer}), $13, $14, $15, 1, CAST($2 AS {integer})
     FROM session_wakes WHERE session_id = $1 RETURNING ordinal`,
    [
      sessionId,
      wake.at,
      wake.did,
      wake.why,
      wake.message,
      wake.formerSandboxId,
      wake.sandboxId,
      wake.source?.checkpointId ?? null,
      wake.source?.kind ?? null,
      JSON.stringify(wake.lost),
      wake.lostSince,
      wake.threadKept ? 1 : 0,
      wake.error?.code ?? null,
      wake.error?.message ?? null,
      cause,
    ],
  );
  await tx.query('DELETE FROM session_wakes WHERE session_id = $1 AND ordinal <= $2', [
    sessionId,
    Number(row?.ordinal ?? 0) - kept,
  ]);
}

export interface WakeRecord {
  readonly change: SessionChange;
  readonly sandboxBefore: SandboxId | null;
  readonly sandboxAfter: SandboxId | null;
  readonly source: Source | null;
}

/** Records a change of the session's binding, in the transaction that makes the change. */
export async function recordWake(
  tx: Transaction,
  sessionId: SessionId,
  { change, sandboxBefore, sandboxAfter, source }: WakeRecord,
  kept: number,
): Promise<void> {
  const { at, why, message, lost, lostSince, threadKept } = change;
  const about = { at, why, message, lost, lostSince, threadKept, source, error: null };
  const wake = { ...about, did: wakeOf(change), formerSandboxId: sandboxBefore, sandboxId: sandboxAfter };
  await insertWake(tx, sessionId, wake, null, kept);
}

function wakeOf({ did, why, formerSandboxId }: SessionChange): SessionWake['did'] {
  if (did !== 'spawned') return did;
  if (why === 'request') return 'rebound';
  return formerSandboxId === null ? 'spawned' : 'replaced';
}

/** Identifies the cause of a failure. Ids and numbers in a message differ from attempt to attempt, so they are removed. */
function causeOf({ code, message }: TorporError): string {
  return `${code}: ${message.replace(/\b[a-z]{2,5}_[a-z0-9]{20}\b/g, '…').replace(/\d+/g, '#')}`;
}

export interface FailedWake {
  readonly at: number;
  readonly sandboxId: SandboxId | null;
  readonly error: TorporError;
}

/** True when this is a new cause since the session last worked. The caller holds the lock of the session's row. */
export async function recordFailure(
  tx: Transaction,
  sessionId: SessionId,
  { at, sandboxId, error }: FailedWake,
  kept: number,
): Promise<boolean> {
  const cause = causeOf(error);
  const again = await tx.query(
    `UPDATE session_wakes SET times = times + 1, last_at = $3
     WHERE session_id = $1 AND cause = $2 AND recovered_at IS NULL RETURNING ordinal`,
    [sessionId, cause, at],
  );
  if (again.length > 0) return false;
  const { code, message } = error;
  const nothing = { why: null, message: null, source: null, lost: [], lostSince: null, threadKept: true };
  const wake = { at, did: 'failed', formerSandboxId: sandboxId, sandboxId, ...nothing } as const;
  await insertWake(tx, sessionId, { ...wake, lost: [], error: { code, message } }, cause, kept);
  return true;
}

/** The session works again: from now on the same causes count as new (R106). */
export async function recordRecovery(tx: Transaction, sessionId: SessionId, at: number): Promise<void> {
  await tx.query(
    'UPDATE session_wakes SET recovered_at = $2 WHERE session_id = $1 AND cause IS NOT NULL AND recovered_at IS NULL',
    [sessionId, at],
  );
}

/** Whether two errors have the same cause. */
export function isSameCause(a: TorporError, b: TorporError): boolean {
  return causeOf(a) === causeOf(b);
}

/** Rows of turns, and every transition of a turn. Each transition names the state it starts from. */
import type { Queryable, Row, Transaction } from '@torpor/engine';
import {
  type ErrorBody,
  type SandboxId,
  type SessionId,
  TorporError,
  type TurnId,
  type TurnState,
  type TurnView,
} from '@torpor/protocol';
import { CHANNEL } from './context.ts';

export interface Turn {
  readonly id: TurnId;
  readonly sessionId: SessionId;
  readonly seq: number;
  readonly key: string | null;
  readonly input: string;
  readonly state: TurnState;
  readonly sandboxId: SandboxId | null;
  readonly generation: number | null;
  /** The `seq` of the sandbox when the turn was claimed for it, and when the turn ended. */
  readonly claimedSeq: number | null;
  readonly endedSeq: number | null;
  readonly tag: string | null;
  readonly outputEnd: number;
  readonly exitCode: number | null;
  readonly error: ErrorBody | null;
  readonly tries: number;
  readonly tryAt: number;
  readonly createdAt: number;
  readonly deliveredAt: number | null;
  readonly endedAt: number | null;
}

const COLUMNS = `id, session_id, seq, key, input, state, sandbox_id, generation, claimed_seq, ended_seq, tag, output_end,
  exit_code, error, tries, try_at, created_at, delivered_at, ended_at`;

function toTurn(row: Row): Turn {
  return {
    id: row['id'],
    sessionId: row['session_id'],
    seq: row['seq'],
    key: row['key'],
    input: row['input'],
    state: row['state'],
    sandboxId: row['sandbox_id'],
    generation: row['generation'],
    claimedSeq: row['claimed_seq'],
    endedSeq: row['ended_seq'],
    tag: row['tag'],
    outputEnd: row['output_end'],
    exitCode: row['exit_code'],
    error: row['error'] === null ? null : JSON.parse(String(row['error'])),
    tries: row['tries'],
    tryAt: row['try_at'],
    createdAt: row['created_at'],
    deliveredAt: row['delivered_at'],
    endedAt: row['ended_at'],
  } as Turn;
}

async function findTurn(db: Queryable, id: TurnId): Promise<Turn | undefined> {
  const [row] = await db.query(`SELECT ${COLUMNS} FROM session_turns WHERE id = $1`, [id]);
  return row === undefined ? undefined : toTurn(row);
}

export async function getTurn(db: Queryable, sessionId: SessionId, id: TurnId): Promise<Turn> {
  const turn = await findTurn(db, id);
  if (turn?.sessionId === sessionId) return turn;
  throw new TorporError('not_found', `There is no turn ${id} of session ${sessionId}.`);
}

export async function findTurnByKey(
  db: Queryable,
  sessionId: SessionId,
  key: string,
): Promise<Turn | undefined> {
  const [row] = await db.query(`SELECT ${COLUMNS} FROM session_turns WHERE session_id = $1 AND key = $2`, [
    sessionId,
    key,
  ]);
  return row === undefined ? undefined : toTurn(row);
}

/** Oldest first. */
export async function listTurns(
  db: Queryable,
  sessionId: SessionId,
  afterSeq: number,
  limit: number,
): Promise<Turn[]> {
  const rows = await db.query(
    `SELECT ${COLUMNS} FROM session_turns WHERE session_id = $1 AND seq > $2 ORDER BY seq LIMIT $3`,
    [sessionId, afterSeq, limit],
  );
  return rows.map(toTurn);
}

/** The turn to work on: turns of a session are delivered one after the other. */
export async function firstOpenTurn(db: Queryable, sessionId: SessionId): Promise<Turn | undefined> {
  const [row] = await db.query(
    `SELECT ${COLUMNS} FROM session_turns WHERE session_id = $1 AND ended_at IS NULL ORDER BY seq LIMIT 1`,
    [sessionId],
  );
  return row === undefined ? undefined : toTurn(row);
}

/** The last turn that may have been delivered to a sandbox. */
export async function lastClaimedTurn(db: Queryable, sessionId: SessionId): Promise<Turn | undefined> {
  const [row] = await db.query(
    `SELECT ${COLUMNS} FROM session_turns WHERE session_id = $1 AND sandbox_id IS NOT NULL ORDER BY seq DESC LIMIT 1`,
    [sessionId],
  );
  return row === undefined ? undefined : toTurn(row);
}

/** Sessions with a turn that is due and that no other server works on. */
export async function sessionsWithWork(
  db: Queryable,
  serverId: string,
  now: number,
  limit: number,
): Promise<SessionId[]> {
  const rows = await db.query<{ session_id: SessionId }>(
    `SELECT t.session_id FROM session_turns t JOIN sessions s ON s.id = t.session_id
     WHERE t.ended_at IS NULL AND t.try_at <= $1 AND (s.worked_by IS NULL OR s.worked_by = $3 OR ${IS_LEFT})
     GROUP BY t.session_id ORDER BY MIN(t.try_at) LIMIT $2`,
    [now, limit, serverId],
  );
  return rows.map((row) => row.session_id);
}

/** The server that worked on the session is dead. Compares with the clock of the asking server, as all leases of servers do. */
const IS_LEFT = 'NOT EXISTS (SELECT 1 FROM servers v WHERE v.id = s.worked_by AND v.lease_until > $1)';

/** False when another server works on the session. Of two servers that ask at once, the row's lock lets the second one see the first. */
export async function beginWork(
  tx: Transaction,
  id: SessionId,
  serverId: string,
  now: number,
): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE sessions AS s SET worked_by = $3
     WHERE s.id = $2 AND (s.worked_by IS NULL OR s.worked_by = $3 OR ${IS_LEFT}) RETURNING id`,
    [now, id, serverId],
  );
  return rows.length > 0;
}

export async function endWork(tx: Transaction, id: SessionId, serverId: string): Promise<void> {
  await tx.query('UPDATE sessions SET worked_by = NULL WHERE id = $1 AND worked_by = $2', [id, serverId]);
}

/** The caller holds the lock of the session's row, so that two turns never get the same number. */
export async function insertTurn(
  tx: Transaction,
  turn: Pick<Turn, 'id' | 'sessionId' | 'key' | 'input' | 'createdAt'>,
): Promise<void> {
  await tx.query(
    `INSERT INTO session_turns (id, session_id, seq, key, input, state, output_end, tries, try_at, created_at)
     SELECT $1, $2, COALESCE(MAX(seq), 0) + 1, $3, $4, 'waiting', 0, 0, CAST($5 AS {integer}), CAST($5 AS {integer})
     FROM session_turns WHERE session_id = $2`,
    [turn.id, turn.sessionId, turn.key, turn.input, turn.createdAt],
  );
  tx.notify(CHANNEL);
}

/**
 * Records the destination of a turn before the turn is sent, so that after a crash it is known where the turn may have
 * arrived. False when the session or the sandbox has changed since the caller read it; then nothing may be sent.
 *
 * The session's row is locked: while a turn is claimed, no other sandbox is bound, and once another sandbox is planned, no
 * turn is claimed for the old one. So a new sandbox is always compared with the last turn.
 */
export async function claimTurn(
  tx: Transaction,
  { id, sessionId }: Turn,
  sandboxId: SandboxId,
  generation: number,
): Promise<boolean> {
  const [bound] = await tx.query(
    'SELECT id FROM sessions WHERE id = $1 AND sandbox_id = $2 AND plan IS NULL AND ended_at IS NULL {FOR UPDATE}',
    [sessionId, sandboxId],
  );
  if (bound === undefined) return false;
  const rows = await tx.query(
    `UPDATE session_turns SET state = 'delivering', sandbox_id = $2, generation = $3, claimed_seq = b.seq
     FROM sandboxes b WHERE b.id = $2 AND b.generation = $3 AND session_turns.id = $1
       AND session_turns.state = 'waiting' RETURNING session_turns.id`,
    [id, sandboxId, generation],
  );
  return rows.length > 0;
}

/** `toldHistory`: the program got the history together with the turn. */
export async function markAnswering(
  tx: Transaction,
  { id, sessionId }: Turn,
  { sandboxId, tag, offset, toldHistory }: Answering,
  now: number,
): Promise<void> {
  await tx.query(
    `UPDATE session_turns SET state = 'answering', tag = $2, output_end = $3, delivered_at = $4, error = NULL, tries = 0
     WHERE id = $1 AND state = 'delivering'`,
    [id, tag, offset, now],
  );
  // When the session has another sandbox by now, the program in that sandbox still needs the history.
  if (toldHistory)
    await tx.query('UPDATE sessions SET history_due = 0 WHERE id = $1 AND sandbox_id = $2', [
      sessionId,
      sandboxId,
    ]);
  tx.notify(CHANNEL);
}

export interface Answering {
  readonly sandboxId: SandboxId;
  readonly tag: string;
  readonly offset: number;
  readonly toldHistory: boolean;
}

/** Everything that the turn wrote comes before the events after this `seq`. */
const ENDED_SEQ = 'ended_seq = (SELECT b.seq FROM sandboxes b WHERE b.id = session_turns.sandbox_id)';

export interface TurnEnd {
  readonly state: 'done' | 'failed' | 'unknown';
  readonly exitCode: number | null;
  readonly error: ErrorBody | null;
}

/** The first end of a turn is final. */
export async function endTurn(tx: Transaction, id: TurnId, end: TurnEnd, now: number): Promise<void> {
  await tx.query(
    `UPDATE session_turns SET state = $2, exit_code = $3, error = $4, ended_at = $5, ${ENDED_SEQ}
     WHERE id = $1 AND ended_at IS NULL`,
    [id, end.state, end.exitCode, end.error === null ? null : JSON.stringify(end.error), now],
  );
  tx.notify(CHANNEL);
}

export async function endOpenTurns(
  tx: Transaction,
  sessionId: SessionId,
  error: ErrorBody,
  now: number,
): Promise<void> {
  await tx.query(
    `UPDATE session_turns SET state = CASE WHEN state = 'delivering' THEN 'unknown' ELSE 'failed' END,
       error = $2, ended_at = $3, ${ENDED_SEQ} WHERE session_id = $1 AND ended_at IS NULL`,
    [sessionId, JSON.stringify(error), now],
  );
  tx.notify(CHANNEL);
}

/** Postpones the turn. The error shows why until the next attempt. */
export async function postpone(
  tx: Transaction,
  id: TurnId,
  error: ErrorBody | null,
  tryAt: number,
): Promise<void> {
  await tx.query(
    `UPDATE session_turns SET error = $2, tries = tries + 1, try_at = $3 WHERE id = $1 AND ended_at IS NULL`,
    [id, error === null ? null : JSON.stringify(error), tryAt],
  );
  tx.notify(CHANNEL);
}

export function viewTurn(turn: Turn): TurnView {
  const { id, sessionId, seq, state, input, sandboxId, exitCode, error, createdAt, deliveredAt, endedAt } =
    turn;
  return { id, sessionId, seq, state, input, sandboxId, exitCode, error, createdAt, deliveredAt, endedAt };
}

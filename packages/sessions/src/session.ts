/** Rows of sessions: one statement per function. */
import type { Queryable, Row, Transaction } from '@torpor/engine';
import {
  type CheckpointId,
  type ErrorBody,
  type SandboxId,
  type SessionChange,
  type SessionId,
  type SessionSpec,
  type SessionView,
  type Source,
  TorporError,
} from '@torpor/protocol';
import { CHANNEL } from './context.ts';
import { recordRecovery, recordWake } from './wake.ts';

/** A new sandbox that was decided on and is not bound yet. */
export interface Plan {
  readonly at: number;
  /** The checkpoint whose files it starts from; null means the template. */
  readonly from: CheckpointId | null;
  readonly why: string;
  readonly message: string | null;
  readonly formerId: SandboxId | null;
  /** Whether the former sandbox is killed once this one is bound. A sandbox that may still have files is not killed. */
  readonly retire: boolean;
  /** The runtime that the session moves to. It becomes part of the spec when the sandbox is bound. */
  readonly runtime?: string;
}

export interface Session {
  readonly id: SessionId;
  readonly org: string;
  readonly key: string;
  readonly spec: SessionSpec;
  readonly sandboxId: SandboxId | null;
  readonly formerId: SandboxId | null;
  readonly agentThreadId: string | null;
  readonly spawns: number;
  readonly plan: Plan | null;
  readonly historyDue: boolean;
  readonly change: SessionChange | null;
  readonly error: ErrorBody | null;
  /** Creating a sandbox from the spec failed for good: another spec may replace it. */
  readonly specFailed: boolean;
  readonly createdAt: number;
  readonly endedAt: number | null;
}

const COLUMN_NAMES = `id, org, key, spec, sandbox_id, former_id, agent_thread_id, spawns, plan, history_due, change, error,
  spec_failed, created_at, ended_at`;
/** For statements that join: every column of the table `s`. */
export const SESSION_COLUMNS = COLUMN_NAMES.split(',')
  .map((name) => `s.${name.trim()}`)
  .join(', ');

export function toSession(row: Row): Session {
  const parsed = (column: string) => (row[column] === null ? null : JSON.parse(String(row[column])));
  return {
    id: row['id'],
    org: row['org'],
    key: row['key'],
    spec: parsed('spec'),
    sandboxId: row['sandbox_id'],
    formerId: row['former_id'],
    agentThreadId: row['agent_thread_id'],
    spawns: row['spawns'],
    plan: parsed('plan'),
    historyDue: row['history_due'] === 1,
    change: parsed('change'),
    error: parsed('error'),
    specFailed: row['spec_failed'] === 1,
    createdAt: row['created_at'],
    endedAt: row['ended_at'],
  } as Session;
}

export function noSuchSession(id: string): TorporError {
  return new TorporError('not_found', `There is no session ${id}.`);
}

export function sessionEnded({ id }: Pick<Session, 'id'>): TorporError {
  return new TorporError('conflict', `The session ${id} is ended.`, {
    hint: 'Open a new one; it may have the same key.',
  });
}

export async function findSession(db: Queryable, id: SessionId): Promise<Session | undefined> {
  const [row] = await db.query(`SELECT ${SESSION_COLUMNS} FROM sessions s WHERE s.id = $1`, [id]);
  return row === undefined ? undefined : toSession(row);
}

/** Reads the session and locks its row until the transaction ends. */
export async function lockSession(tx: Transaction, id: SessionId): Promise<Session | undefined> {
  const [row] = await tx.query(`SELECT ${SESSION_COLUMNS} FROM sessions s WHERE s.id = $1 {FOR UPDATE}`, [
    id,
  ]);
  return row === undefined ? undefined : toSession(row);
}

/** A session of another organisation counts as absent (R104). */
export async function getSession(db: Queryable, org: string, id: SessionId): Promise<Session> {
  const session = await findSession(db, id);
  if (session === undefined || session.org !== org) throw noSuchSession(id);
  return session;
}

export async function findByKey(db: Queryable, org: string, key: string): Promise<Session | undefined> {
  const [row] = await db.query(
    `SELECT ${SESSION_COLUMNS} FROM sessions s WHERE s.org = $1 AND s.key = $2 AND s.ended_at IS NULL`,
    [org, key],
  );
  return row === undefined ? undefined : toSession(row);
}

export interface SessionFilter {
  readonly org: string;
  readonly key?: string | undefined;
  readonly ended?: boolean | undefined;
}

/** One page in the order of ids, which is stable while sessions are added and ended. */
export async function listSessions(
  db: Queryable,
  { org, key, ended }: SessionFilter,
  after: string,
  limit: number,
): Promise<Session[]> {
  const params: (string | number)[] = [org, after, limit];
  const conditions = ['s.org = $1', 's.id > $2'];
  if (key !== undefined) conditions.push(`s.key = $${params.push(key)}`);
  if (ended !== true) conditions.push('s.ended_at IS NULL');
  const rows = await db.query(
    `SELECT ${SESSION_COLUMNS} FROM sessions s WHERE ${conditions.join(' AND ')} ORDER BY s.id LIMIT $3`,
    params,
  );
  return rows.map(toSession);
}

/** Of several concurrent inserts with one key the first succeeds. The others insert nothing, and read the session again. */
export async function insertSession(tx: Transaction, session: Session): Promise<void> {
  await tx.query(
    `INSERT INTO sessions (id, org, key, spec, sandbox_id, former_id, agent_thread_id, spawns, plan, history_due,
       change, error, created_at, ended_at)
     VALUES ($1, $2, $3, $4, NULL, NULL, NULL, 1, NULL, 0, NULL, NULL, $5, NULL)
     ON CONFLICT (org, key) WHERE ended_at IS NULL DO NOTHING`,
    [session.id, session.org, session.key, JSON.stringify(session.spec), session.createdAt],
  );
}

/**
 * Writes a plan unless another plan was written first. The number of spawns is the fence: a caller that read an older
 * number decided on outdated facts.
 */
export async function writePlan(tx: Transaction, { id, spawns }: Session, plan: Plan): Promise<void> {
  await tx.query(
    'UPDATE sessions SET plan = $3 WHERE id = $1 AND spawns = $2 AND plan IS NULL AND ended_at IS NULL',
    [id, spawns, JSON.stringify(plan)],
  );
}

/** Replaces or drops the plan. The number of spawns grows, so that the next sandbox gets another idempotency key. */
export async function replacePlan(
  tx: Transaction,
  { id, spawns }: Session,
  next: Plan | null,
): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE sessions SET plan = $3, spawns = spawns + 1 WHERE id = $1 AND spawns = $2 RETURNING id`,
    [id, spawns, next === null ? null : JSON.stringify(next)],
  );
  return rows.length > 0;
}

/** Creating a sandbox from the spec has failed for good. */
export async function markSpecFailed(tx: Transaction, { id, spawns }: Session): Promise<void> {
  await tx.query(
    'UPDATE sessions SET plan = NULL, spawns = spawns + 1, spec_failed = 1 WHERE id = $1 AND spawns = $2',
    [id, spawns],
  );
}

/**
 * Replaces the spec of a session whose spec failed. The number of spawns grows, so that a sandbox that is still being
 * created from the old spec is not bound.
 */
export async function correctSpec(
  tx: Transaction,
  { id, spawns }: Session,
  spec: SessionSpec,
): Promise<void> {
  await tx.query(
    `UPDATE sessions SET spec = $3, spec_failed = 0, error = NULL, plan = NULL, spawns = spawns + 1
     WHERE id = $1 AND spawns = $2 AND spec_failed = 1 AND ended_at IS NULL`,
    [id, spawns, JSON.stringify(spec)],
  );
  tx.notify(CHANNEL);
}

export interface Binding {
  readonly sandboxId: SandboxId;
  readonly change: SessionChange;
  /** What the sandbox was started from; null when it existed before. */
  readonly source: Source | null;
  /** Replaces the session's spec. */
  readonly spec?: SessionSpec;
}

/** False when another sandbox was bound, or the session was ended, since the session was read. */
export async function bind(
  tx: Transaction,
  session: Session,
  { sandboxId, change, source, spec }: Binding,
  wakesKept: number,
): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE sessions SET sandbox_id = $3, former_id = NULL, plan = NULL, spawns = spawns + 1, change = $4, error = NULL,
       spec = COALESCE($6, spec), spec_failed = 0,
       agent_thread_id = CASE WHEN $5 = 1 THEN agent_thread_id END,
       history_due = CASE WHEN $5 = 1 THEN history_due ELSE 1 END
     WHERE id = $1 AND spawns = $2 AND ended_at IS NULL RETURNING id`,
    [
      session.id,
      session.spawns,
      sandboxId,
      JSON.stringify(change),
      change.threadKept ? 1 : 0,
      spec === undefined ? null : JSON.stringify(spec),
    ],
  );
  tx.notify(CHANNEL);
  if (rows.length === 0) return false;
  const sandboxBefore = change.formerSandboxId;
  await recordRecovery(tx, session.id, change.at);
  await recordWake(tx, session.id, { change, sandboxBefore, sandboxAfter: sandboxId, source }, wakesKept);
  return true;
}

/** The bound sandbox runs again. The binding stays, and what was lost is recorded. */
export async function recordResume(
  tx: Transaction,
  { id, spawns, sandboxId }: Session,
  { change, source }: Pick<Binding, 'change' | 'source'>,
  wakesKept: number,
): Promise<void> {
  const rows = await tx.query(
    `UPDATE sessions SET change = $3, agent_thread_id = CASE WHEN $4 = 1 THEN agent_thread_id END,
       history_due = CASE WHEN $4 = 1 THEN history_due ELSE 1 END
     WHERE id = $1 AND spawns = $2 RETURNING id`,
    [id, spawns, JSON.stringify(change), change.threadKept ? 1 : 0],
  );
  if (rows.length === 0) return;
  const same = { sandboxBefore: sandboxId, sandboxAfter: sandboxId };
  await recordWake(tx, id, { change, source, ...same }, wakesKept);
}

/** Removes the binding to a dead sandbox, unless the session has changed since it was read. */
export async function unbind(
  tx: Transaction,
  session: Session,
  change: SessionChange,
  wakesKept: number,
): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE sessions SET sandbox_id = NULL, former_id = $3, change = $4,
       agent_thread_id = CASE WHEN $5 = 1 THEN agent_thread_id END,
       history_due = CASE WHEN $5 = 1 THEN history_due ELSE 1 END
     WHERE id = $1 AND spawns = $2 AND sandbox_id = $3 AND ended_at IS NULL RETURNING id`,
    [session.id, session.spawns, session.sandboxId, JSON.stringify(change), change.threadKept ? 1 : 0],
  );
  if (rows.length === 0) return false;
  const woken = { change, sandboxBefore: session.sandboxId, sandboxAfter: null, source: null };
  await recordWake(tx, session.id, woken, wakesKept);
  return true;
}

/** Records why the session has no running sandbox. Writes only when the error has changed. */
export async function setError(tx: Transaction, id: SessionId, error: ErrorBody): Promise<void> {
  await tx.query('UPDATE sessions SET error = $2 WHERE id = $1 AND COALESCE(error, $3) <> $2', [
    id,
    JSON.stringify(error),
    '',
  ]);
  tx.notify(CHANNEL);
}

/** The session has a running sandbox again. */
export async function clearError(tx: Transaction, id: SessionId, at: number): Promise<void> {
  await tx.query('UPDATE sessions SET error = NULL, spec_failed = 0 WHERE id = $1', [id]);
  await recordRecovery(tx, id, at);
  tx.notify(CHANNEL);
}

/** Ignored for a sandbox that the session has left: the files of that thread are not in the current sandbox. */
export async function setThread(
  tx: Transaction,
  id: SessionId,
  sandboxId: SandboxId,
  thread: string,
): Promise<void> {
  await tx.query('UPDATE sessions SET agent_thread_id = $3 WHERE id = $1 AND sandbox_id = $2', [
    id,
    sandboxId,
    thread,
  ]);
}

export async function addLeftover(tx: Transaction, session: Session, sandboxId: SandboxId): Promise<void> {
  await tx.query(
    `INSERT INTO session_leftovers (sandbox_id, org, session_id) VALUES ($1, $2, $3)
     ON CONFLICT (sandbox_id) DO NOTHING`,
    [sandboxId, session.org, session.id],
  );
}

export function viewSession(session: Session): SessionView {
  const { id, key, spec, sandboxId, agentThreadId, error, createdAt, endedAt } = session;
  // Changes that were stored before `lostSince` was recorded do not have it.
  const change =
    session.change === null ? null : { ...session.change, lostSince: session.change.lostSince ?? null };
  return { id, key, ...spec, sandboxId, agentThreadId, change, error, createdAt, endedAt };
}

/** The table of API keys: one statement per function. */
import type { Queryable, Row, Transaction } from '@torpor/engine';
import { DEFAULT_ORG, type KeyView } from '@torpor/protocol';

export interface KeyRow extends KeyView {
  readonly hash: string;
}

const COLUMNS = 'hash, id, org, subject, name, operator, read_only, created_at, expires_at, revoked_at';

function toKey(row: Row): KeyRow {
  return {
    hash: row['hash'],
    id: row['id'],
    org: row['org'],
    subject: row['subject'],
    name: row['name'],
    operator: row['operator'] === 1,
    readOnly: row['read_only'] === 1,
    createdAt: row['created_at'],
    expiresAt: row['expires_at'],
    revokedAt: row['revoked_at'],
  } as KeyRow;
}

export async function findKey(db: Queryable, hash: string): Promise<KeyRow | undefined> {
  const [row] = await db.query(`SELECT ${COLUMNS} FROM api_keys WHERE hash = $1`, [hash]);
  return row === undefined ? undefined : toKey(row);
}

export async function findKeyById(db: Queryable, org: string, id: string): Promise<KeyRow | undefined> {
  const [row] = await db.query(`SELECT ${COLUMNS} FROM api_keys WHERE org = $1 AND id = $2`, [org, id]);
  return row === undefined ? undefined : toKey(row);
}

/** Keys in pages by id, including revoked and expired ones. */
export async function listKeys(db: Queryable, org: string, after: string, limit: number): Promise<KeyRow[]> {
  const rows = await db.query(
    `SELECT ${COLUMNS} FROM api_keys WHERE org = $1 AND id > $2 ORDER BY id LIMIT $3`,
    [org, after, limit],
  );
  return rows.map(toKey);
}

/** An existing key does not change: the next start inserts the same configured key again. */
export async function insertKey(tx: Transaction, key: KeyRow): Promise<void> {
  await tx.query(
    `INSERT INTO api_keys (${COLUMNS})
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (hash) DO NOTHING`,
    [
      key.hash,
      key.id,
      key.org,
      key.subject,
      key.name,
      key.operator ? 1 : 0,
      key.readOnly ? 1 : 0,
      key.createdAt,
      key.expiresAt,
      key.revokedAt,
    ],
  );
}

export async function markRevoked(tx: Transaction, hash: string, now: number): Promise<void> {
  await tx.query('UPDATE api_keys SET revoked_at = $2 WHERE hash = $1 AND revoked_at IS NULL', [hash, now]);
}

/** Makes the key that the server is started with a valid operator key, even if it was revoked. */
export async function markValid(tx: Transaction, hash: string): Promise<void> {
  await tx.query(
    'UPDATE api_keys SET revoked_at = NULL, expires_at = NULL, operator = 1, read_only = 0 WHERE hash = $1 AND org = $2',
    [hash, DEFAULT_ORG],
  );
}

/** The number of valid keys of the organisation. */
export async function countValidKeys(db: Queryable, org: string, now: number): Promise<number> {
  const [row] = await db.query<{ valid: number }>(
    `SELECT COUNT(*) AS valid FROM api_keys
     WHERE org = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)`,
    [org, now],
  );
  return row?.valid ?? 0;
}

/**
 * Locks the service keys of the organisation that may make other keys, so that two concurrent revocations cannot remove
 * the last two of them.
 */
export async function lockServiceKeys(tx: Transaction, org: string, now: number): Promise<KeyRow[]> {
  const rows = await tx.query(
    `SELECT ${COLUMNS} FROM api_keys
     WHERE org = $1 AND subject IS NULL AND read_only = 0 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)
     {FOR UPDATE}`,
    [org, now],
  );
  return rows.map(toKey);
}

/** Idempotency keys: the same key with the same body gets the same operation, for a day. */
import { createHash } from 'node:crypto';
import { type OperationId, TorporError } from '@torpor/protocol';
import type { Transaction } from '../ports/database.ts';

export interface Key {
  readonly org: string;
  /** The verb and the sandbox that it acts on (the column `route`). */
  readonly scope: string;
  readonly key: string;
  readonly bodyHash: string;
}

export function hashBody(body: unknown): string {
  return createHash('sha256').update(canonical(body)).digest('hex');
}

/** JSON with sorted keys, so that the order in which a client writes them does not matter. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (typeof value === 'object' && value !== null) {
    const entries = Object.entries(value)
      .filter(([, v]) => v !== undefined)
      .sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${entries.map(([k, v]) => `${JSON.stringify(k)}:${canonical(v)}`).join(',')}}`;
  }
  return JSON.stringify(value) ?? 'null';
}

/** The operation of an earlier request with this key, if there is one. Another body under the same key is an error. */
export async function findByKey(tx: Transaction, key: Key, now: number): Promise<OperationId | undefined> {
  const [row] = await tx.query<{ body_hash: string; operation_id: OperationId; expires_at: number }>(
    'SELECT body_hash, operation_id, expires_at FROM idempotency_keys WHERE org = $1 AND route = $2 AND key = $3',
    [key.org, key.scope, key.key],
  );
  if (row === undefined) return undefined;
  if (row.expires_at <= now) {
    await tx.query('DELETE FROM idempotency_keys WHERE org = $1 AND route = $2 AND key = $3', [
      key.org,
      key.scope,
      key.key,
    ]);
    return undefined;
  }
  if (row.body_hash !== key.bodyHash) {
    throw new TorporError(
      'idempotency_mismatch',
      `The idempotency key "${key.key}" was used with another body.`,
      {
        operationId: row.operation_id,
      },
    );
  }
  return row.operation_id;
}

/** Fails on the primary key when an identical request was quicker; the caller then retries and finds its operation. */
export async function rememberKey(
  tx: Transaction,
  key: Key,
  operationId: OperationId,
  expiresAt: number,
): Promise<void> {
  await tx.query(
    `INSERT INTO idempotency_keys (org, route, key, body_hash, operation_id, expires_at)
     VALUES ($1, $2, $3, $4, $5, $6)`,
    [key.org, key.scope, key.key, key.bodyHash, operationId, expiresAt],
  );
}

export async function forgetExpiredKeys(tx: Transaction, now: number): Promise<void> {
  await tx.query('DELETE FROM idempotency_keys WHERE expires_at <= $1', [now]);
}

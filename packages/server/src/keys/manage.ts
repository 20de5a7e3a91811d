/** Creating and revoking keys, for the routes, the CLI and the first start. */
import { type Clock, type Database, lockOrg } from '@torpor/engine';
import {
  type CreatedKey,
  type CreateKeyRequest,
  DEFAULT_ORG,
  type KeyView,
  pageOf,
  TorporError,
} from '@torpor/protocol';
import { noSuchOrg } from '../orgs/manage.ts';
import { hashKey, keyIdOf, makeKey } from './api-key.ts';
import { findKeyById, insertKey, type KeyRow, listKeys, lockServiceKeys, markRevoked } from './key-table.ts';

export interface KeyContext {
  readonly db: Database;
  readonly clock: Clock;
  readonly randomBytes: (n: number) => Uint8Array;
}

export async function createKey(
  { db, clock, randomBytes }: KeyContext,
  org: string,
  request: CreateKeyRequest,
): Promise<CreatedKey> {
  const key = makeKey(randomBytes);
  const now = clock.now();
  const { name, subject = null, operator = false, readOnly = false, expiresInSeconds } = request;
  if (operator && org !== DEFAULT_ORG) {
    throw new TorporError('invalid_request', `Only keys of "${DEFAULT_ORG}" can be operator keys.`);
  }
  const expiresAt = expiresInSeconds === undefined ? null : now + expiresInSeconds * 1_000;
  const row = rowOf(key, { org, subject, name, operator, readOnly, createdAt: now, expiresAt });
  await db.transaction(async (tx) => {
    // The lock prevents that the organisation is deleted between this check and the insert.
    if ((await lockOrg(tx, org)) === undefined) throw noSuchOrg(org);
    await insertKey(tx, row);
  });
  return { ...viewKey(row), key };
}

export function rowOf(key: string, rest: Omit<KeyView, 'id' | 'revokedAt'>): KeyRow {
  const hash = hashKey(key);
  return { ...rest, hash, id: keyIdOf(hash), revokedAt: null };
}

export async function pageOfKeys({ db }: Pick<KeyContext, 'db'>, org: string, after: string, limit: number) {
  const { items, nextCursor } = pageOf(await listKeys(db, org, after, limit + 1), limit, ({ id }) => id);
  return { items: items.map(viewKey), nextCursor };
}

/**
 * Revoking a revoked key changes nothing. The last service key of an organisation and the last operator key cannot be
 * revoked, because nobody could make another. An operator may revoke the last key of another organisation.
 */
export async function revokeKey(
  { db, clock }: Pick<KeyContext, 'db' | 'clock'>,
  org: string,
  id: string,
  byOperator = false,
): Promise<KeyView> {
  const now = clock.now();
  return db.transaction(async (tx) => {
    const left = await lockServiceKeys(tx, org, now);
    const key = await findKeyById(tx, org, id);
    if (key === undefined) throw new TorporError('not_found', `There is no key ${id}.`);
    if (key.operator && !byOperator) {
      throw new TorporError('forbidden', 'Only an operator key may revoke an operator key.');
    }
    const others = left.filter(({ hash }) => hash !== key.hash);
    const mayBeLast = byOperator && org !== DEFAULT_ORG;
    if (left.length === 1 && others.length === 0 && !mayBeLast) {
      throw lastKeyError('service key of the organisation');
    }
    if (key.operator && others.length < left.length && !others.some(({ operator }) => operator)) {
      throw lastKeyError('operator key');
    }
    await markRevoked(tx, key.hash, now);
    return { ...viewKey(key), revokedAt: key.revokedAt ?? now };
  });
}

function lastKeyError(what: string): TorporError {
  return new TorporError('conflict', `This is the last ${what}.`, { hint: 'Create another one first.' });
}

function viewKey({ hash: _, ...view }: KeyRow): KeyView {
  return view;
}

/** Making and revoking keys, for the routes, the command line and the first start. */
import type { Clock, Database } from '@torpor/engine';
import { type CreatedKey, type CreateKeyRequest, type KeyView, pageOf, TorporError } from '@torpor/protocol';
import { hashKey, keyIdOf, makeKey } from './api-key.ts';
import { findKeyById, insertKey, type KeyRow, listKeys, lockServiceKeys, markRevoked } from './key-table.ts';

export interface KeyParts {
  readonly db: Database;
  readonly clock: Clock;
  readonly randomBytes: (n: number) => Uint8Array;
}

export async function createKey(
  { db, clock, randomBytes }: KeyParts,
  org: string,
  request: CreateKeyRequest,
): Promise<CreatedKey> {
  const key = makeKey(randomBytes);
  const now = clock.now();
  const { name, subject = null, expiresInSeconds } = request;
  const expiresAt = expiresInSeconds === undefined ? null : now + expiresInSeconds * 1_000;
  const row = rowOf(key, { org, subject, name, createdAt: now, expiresAt });
  await db.transaction((tx) => insertKey(tx, row));
  return { ...viewKey(row), key };
}

export function rowOf(key: string, rest: Omit<KeyView, 'id' | 'revokedAt'>): KeyRow {
  const hash = hashKey(key);
  return { ...rest, hash, id: keyIdOf(hash), revokedAt: null };
}

export async function pageOfKeys({ db }: Pick<KeyParts, 'db'>, org: string, after: string, limit: number) {
  const { items, nextCursor } = pageOf(await listKeys(db, org, after, limit + 1), limit, ({ id }) => id);
  return { items: items.map(viewKey), nextCursor };
}

/** Revoking one that is revoked changes nothing. The last that can manage keys cannot go: nobody could make another. */
export async function revokeKey(
  { db, clock }: Pick<KeyParts, 'db' | 'clock'>,
  org: string,
  id: string,
): Promise<KeyView> {
  const now = clock.now();
  return db.transaction(async (tx) => {
    const left = await lockServiceKeys(tx, org, now);
    const key = await findKeyById(tx, org, id);
    if (key === undefined) throw new TorporError('not_found', `There is no key ${id}.`);
    if (left.length === 1 && left[0]?.hash === key.hash) {
      throw new TorporError('conflict', 'This is the last service key of the organisation.', {
        hint: 'Create another one first.',
      });
    }
    await markRevoked(tx, key.hash, now);
    return { ...viewKey(key), revokedAt: key.revokedAt ?? now };
  });
}

function viewKey({ hash: _, ...view }: KeyRow): KeyView {
  return view;
}

/**
 * The objects of the store, as the database has them. The database alone decides which objects are needed.
 *
 * An object is `writing` from before its first byte, `stored` once it is complete, and `deleting` when no checkpoint needs it.
 * Its row goes away after its bytes.
 */
import type { CheckpointId } from '@torpor/protocol';
import type { Queryable, Row, Transaction } from '../ports/database.ts';
import type { ReplicaObject, ReplicaPart, StoredReplica } from '../ports/replicas.ts';

/** The marker of a checkpoint and the identity of the store are objects too, but no parts that are fetched. */
export type ObjectSubject = ReplicaPart | { readonly kind: 'marker' | 'identity'; readonly subject: string };

interface ObjectRow extends Row {
  readonly key: string;
  readonly kind: ReplicaPart['kind'];
  readonly subject: string;
  readonly bytes: number;
  readonly sha256: string;
  readonly key_id: string;
}

/**
 * The stored object of a subject. Locks its row, so that the last checkpoint that needs the object cannot be deleted between
 * this read and the reference that follows it in the same transaction.
 */
export async function lockStored(
  tx: Transaction,
  store: string,
  { kind, subject }: ObjectSubject,
): Promise<ReplicaObject | undefined> {
  const [row] = await tx.query<ObjectRow>(
    `SELECT key, kind, subject, bytes, sha256, key_id FROM stored_objects
     WHERE store = $1 AND kind = $2 AND subject = $3 AND state = 'stored' {FOR UPDATE}`,
    [store, kind, subject],
  );
  return row === undefined ? undefined : toObject(row);
}

function toObject({ key, kind, subject, bytes, sha256, key_id: keyId }: ObjectRow): ReplicaObject {
  return { key, kind, subject, bytes, sha256, keyId };
}

/**
 * Gives up what an earlier try of this node has left of a subject. The caller ensures that no upload of it is under
 * way.
 */
export async function giveUpWriting(
  tx: Transaction,
  node: string,
  store: string,
  { kind, subject }: ObjectSubject,
): Promise<void> {
  const keys = await tx.query<{ key: string }>(
    `UPDATE stored_objects SET state = 'deleting'
     WHERE store = $1 AND kind = $2 AND subject = $3 AND state = 'writing' AND node = $4 RETURNING key`,
    [store, kind, subject, node],
  );
  for (const { key } of keys) await tx.query('DELETE FROM checkpoint_objects WHERE key = $1', [key]);
}

/** Whether another node uploads the subject. Its row goes away when that node is back, or is forgotten. */
export async function isWrittenElsewhere(
  tx: Transaction,
  node: string,
  store: string,
  { kind, subject }: ObjectSubject,
): Promise<boolean> {
  const rows = await tx.query(
    `SELECT key FROM stored_objects
     WHERE store = $1 AND kind = $2 AND subject = $3 AND state = 'writing' AND node <> $4`,
    [store, kind, subject, node],
  );
  return rows.length > 0;
}

export async function insertWriting(
  tx: Transaction,
  node: string,
  store: string,
  key: string,
  { kind, subject }: ObjectSubject,
  now: number,
): Promise<void> {
  await tx.query(
    `INSERT INTO stored_objects (key, store, kind, subject, state, created_at, node)
     VALUES ($1, $2, $3, $4, 'writing', $5, $6)`,
    [key, store, kind, subject, now, node],
  );
}

export async function refer(tx: Transaction, checkpointId: CheckpointId, key: string): Promise<void> {
  await tx.query(
    `INSERT INTO checkpoint_objects (checkpoint_id, key) VALUES ($1, $2)
     ON CONFLICT (checkpoint_id, key) DO NOTHING`,
    [checkpointId, key],
  );
}

/** Returns false when the checkpoint was deleted meanwhile, and the object with it. */
export async function markStored(tx: Transaction, key: string, stored: StoredReplica): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE stored_objects SET state = 'stored', bytes = $2, sha256 = $3, key_id = $4
     WHERE key = $1 AND state = 'writing' RETURNING key`,
    [key, stored.bytes, stored.sha256, stored.keyId],
  );
  return rows.length > 0;
}

/** The parts of a replicated checkpoint, without its marker. */
export async function objectsOf(db: Queryable, id: CheckpointId): Promise<ReplicaObject[]> {
  const rows = await db.query<ObjectRow>(
    `SELECT o.key, o.kind, o.subject, o.bytes, o.sha256, o.key_id
     FROM checkpoint_objects r JOIN stored_objects o ON o.key = r.key
     WHERE r.checkpoint_id = $1 AND o.state = 'stored' AND o.kind <> 'marker' ORDER BY o.key`,
    [id],
  );
  return rows.map(toObject);
}

/**
 * Ends the references of a deleted checkpoint, and gives up the objects that no other checkpoint needs. The rows are locked
 * first, in the order of their keys: a reference that another transaction adds is then seen, or its transaction waits.
 */
export async function releaseObjects(tx: Transaction, id: CheckpointId): Promise<void> {
  await tx.query(
    `SELECT key FROM stored_objects
     WHERE key IN (SELECT r.key FROM checkpoint_objects r WHERE r.checkpoint_id = $1) ORDER BY key {FOR UPDATE}`,
    [id],
  );
  const released = await tx.query<{ key: string }>(
    'DELETE FROM checkpoint_objects WHERE checkpoint_id = $1 RETURNING key',
    [id],
  );
  for (const { key } of released) {
    await tx.query(
      `UPDATE stored_objects SET state = 'deleting'
       WHERE key = $1 AND NOT EXISTS (SELECT 1 FROM checkpoint_objects r WHERE r.key = $1)`,
      [key],
    );
  }
}

/** Gives up the uploads that an earlier server of this node did not finish. */
export async function giveUpUnfinished(tx: Transaction, node: string, store: string): Promise<void> {
  await tx.query(
    `DELETE FROM checkpoint_objects
     WHERE key IN (SELECT key FROM stored_objects WHERE store = $1 AND state = 'writing' AND node = $2)`,
    [store, node],
  );
  await tx.query(
    "UPDATE stored_objects SET state = 'deleting' WHERE store = $1 AND state = 'writing' AND node = $2",
    [store, node],
  );
}

/** Of objects that this node has written: no other node can be uploading them. Markers first: a marker says that all other objects are there. */
export async function listToDelete(
  db: Queryable,
  node: string,
  store: string,
  limit: number,
): Promise<string[]> {
  const rows = await db.query<{ key: string }>(
    `SELECT key FROM stored_objects WHERE store = $1 AND state = 'deleting' AND node = $3
     ORDER BY CASE WHEN kind = 'marker' THEN 0 ELSE 1 END, key LIMIT $2`,
    [store, limit, node],
  );
  return rows.map(({ key }) => key);
}

export async function forgetObject(tx: Transaction, key: string): Promise<void> {
  await tx.query("DELETE FROM stored_objects WHERE key = $1 AND state = 'deleting'", [key]);
}

/** Whether a server of this node has ever stored anything in the store that is still there. */
export async function hasStored(db: Queryable, node: string, store: string): Promise<boolean> {
  const rows = await db.query(
    "SELECT key FROM stored_objects WHERE store = $1 AND node = $2 AND state = 'stored' LIMIT 1",
    [store, node],
  );
  return rows.length > 0;
}

/** The stores and data keys that stored objects need. The identity of a store needs neither. */
export async function neededStores(
  db: Queryable,
): Promise<{ readonly stores: readonly string[]; readonly keyIds: readonly string[] }> {
  const rows = await db.query<{ store: string; key_id: string }>(
    "SELECT DISTINCT store, key_id FROM stored_objects WHERE state = 'stored' AND kind <> 'identity' ORDER BY store, key_id",
  );
  const unique = (values: readonly string[]) => [...new Set(values)];
  return {
    stores: unique(rows.map(({ store }) => store)),
    keyIds: unique(rows.map(({ key_id }) => key_id)),
  };
}

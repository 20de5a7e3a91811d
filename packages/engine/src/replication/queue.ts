/** Finds the checkpoints to replicate, from their rows, so that a crash loses nothing of the queue. */
import type { CheckpointId } from '@torpor/protocol';
import {
  CHECKPOINT_COLUMNS,
  type Checkpoint,
  type ReplicaError,
  toCheckpoint,
} from '../checkpoints/checkpoint.ts';
import { listPlaceholders } from '../ledger/placeholders.ts';
import type { Queryable, Transaction } from '../ports/database.ts';

const WAITING = "state = 'sealed' AND external = 0 AND replicated_at IS NULL";

/** The checkpoints of this node that have waited longest, without those that are under way. Read by the index `checkpoints_to_replicate`. */
export async function listToReplicate(
  db: Queryable,
  node: string,
  now: number,
  underWay: readonly CheckpointId[],
  limit: number,
): Promise<Checkpoint[]> {
  const others = underWay.length === 0 ? '' : `AND id NOT IN (${listPlaceholders(underWay.length, 4)})`;
  const rows = await db.query(
    `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints
     WHERE ${WAITING} AND replicate_after <= $1 AND node = $3 ${others} ORDER BY sealed_at, id LIMIT $2`,
    [now, limit, node, ...underWay],
  );
  return rows.map(toCheckpoint);
}

export async function countWaiting(db: Queryable): Promise<number> {
  const [row] = await db.query<{ count: number }>(
    `SELECT CAST(COUNT(*) AS {integer}) AS count FROM checkpoints WHERE ${WAITING}`,
  );
  return row?.count ?? 0;
}

export async function markReplicated(tx: Transaction, id: CheckpointId, now: number): Promise<void> {
  await tx.query(
    'UPDATE checkpoints SET replicated_at = $2, replica_failures = 0, replica_error = NULL WHERE id = $1',
    [id, now],
  );
}

export async function markFailed(
  tx: Transaction,
  id: CheckpointId,
  error: ReplicaError,
  failures: number,
  retryAt: number,
): Promise<void> {
  await tx.query(
    'UPDATE checkpoints SET replica_error = $2, replica_failures = $3, replicate_after = $4 WHERE id = $1',
    [id, JSON.stringify(error), failures, retryAt],
  );
}

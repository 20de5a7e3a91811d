/** Changes of the disk's level in the database: one statement per function. */
import type { DiskEvent, DiskLevel, EventId } from '@torpor/protocol';
import type { Queryable, Transaction } from '../ports/database.ts';

/** A disk whose free space is near a threshold may cross it often; older changes are deleted. */
const KEPT_EVENTS = 100;

/** Newest first. */
export async function listDiskEvents(db: Queryable): Promise<DiskEvent[]> {
  const rows = await db.query<{
    id: EventId;
    at: number;
    level: DiskLevel;
    previous_level: DiskLevel;
    free_bytes: number;
    total_bytes: number;
  }>(
    `SELECT id, at, level, previous_level, free_bytes, total_bytes FROM disk_events
     ORDER BY at DESC, id DESC LIMIT $1`,
    [KEPT_EVENTS],
  );
  return rows.map(({ id, at, level, previous_level: previousLevel, free_bytes, total_bytes }) => ({
    id,
    at,
    type: `disk.${level}`,
    previousLevel,
    freeBytes: free_bytes,
    totalBytes: total_bytes,
  }));
}

export async function insertDiskEvent(
  tx: Transaction,
  level: DiskLevel,
  { id, at, previousLevel, freeBytes, totalBytes }: Omit<DiskEvent, 'type'>,
): Promise<void> {
  await tx.query(
    `INSERT INTO disk_events (id, at, level, previous_level, free_bytes, total_bytes)
     VALUES ($1, $2, $3, $4, $5, $6)`,
    [id, at, level, previousLevel, freeBytes, totalBytes],
  );
}

export async function deleteOldDiskEvents(tx: Transaction): Promise<void> {
  await tx.query(
    'DELETE FROM disk_events WHERE id NOT IN (SELECT id FROM disk_events ORDER BY at DESC, id DESC LIMIT $1)',
    [KEPT_EVENTS],
  );
}

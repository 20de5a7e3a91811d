/** What counts against each quota of an organisation at this moment. */
import type { QuotaName } from '@torpor/protocol';
import type { Queryable } from '../ports/database.ts';

const MIB = 1024 * 1024;

/**
 * A sandbox that an operation has put to sleep only to start it again keeps its place: another one must not take it
 * in between.
 */
const RUNS = `(state IN ('creating', 'running', 'pausing', 'resuming') OR (state = 'paused' AND EXISTS (
  SELECT 1 FROM operations o
  WHERE o.sandbox_id = sandboxes.id AND o.ended_at IS NULL AND o.kind IN ('snapshot', 'fork', 'rollback'))))`;
const KEPT = `state IN ('creating', 'running', 'pausing', 'paused', 'resuming')`;

export type Used = Readonly<Record<QuotaName, number>>;

export async function usedBy(db: Queryable, org: string): Promise<Used> {
  const { running, kept, memory } = await countSandboxes(db, org);
  const { working, waiting } = await countBuilds(db, org);
  return {
    runningSandboxes: running,
    sandboxes: kept,
    memoryMb: memory,
    diskMb: Math.ceil((await checkpointBytes(db, org)) / MIB),
    runningBuilds: working,
    queuedBuilds: waiting,
  };
}

/** Reads the organisation's sandboxes that are not over, by the index `sandboxes_kept`. */
export async function countSandboxes(db: Queryable, org: string) {
  const [row] = await db.query<{ running: number; kept: number; memory: number }>(
    `SELECT COUNT(*) AS kept, COALESCE(SUM(CASE WHEN ${RUNS} THEN 1 ELSE 0 END), 0) AS running,
       CAST(COALESCE(SUM(CASE WHEN ${RUNS} THEN memory_mb END), 0) AS {integer}) AS memory
     FROM sandboxes WHERE org = $1 AND ${KEPT}`,
    [org],
  );
  return { running: row?.running ?? 0, kept: row?.kept ?? 0, memory: row?.memory ?? 0 };
}

/** Checkpoints share files; each is counted with the bytes that were written for it. */
export async function checkpointBytes(db: Queryable, org: string): Promise<number> {
  const [row] = await db.query<{ bytes: number }>(
    `SELECT CAST(COALESCE(SUM(bytes), 0) AS {integer}) AS bytes FROM checkpoints
     WHERE org = $1 AND deleted_at IS NULL AND state = 'sealed'`,
    [org],
  );
  return row?.bytes ?? 0;
}

export async function countBuilds(db: Queryable, org: string) {
  const [row] = await db.query<{ working: number; waiting: number }>(
    `SELECT COALESCE(SUM(CASE WHEN admitted_at IS NOT NULL AND status <> 'scheduled' THEN 1 ELSE 0 END), 0) AS working,
       COALESCE(SUM(CASE WHEN admitted_at IS NULL AND status = 'queued' THEN 1 ELSE 0 END), 0) AS waiting
     FROM build_jobs WHERE org = $1 AND completed_at IS NULL`,
    [org],
  );
  return { working: row?.working ?? 0, waiting: row?.waiting ?? 0 };
}

/** What counts against each quota of an organisation now. */
import type { QuotaName, SandboxId } from '@torpor/protocol';
import type { Queryable } from '../ports/database.ts';

const MIB = 1024 * 1024;

export type QuotaUsage = Readonly<Record<QuotaName, number>>;

export async function quotaUsage(db: Queryable, org: string): Promise<QuotaUsage> {
  const { running, kept, memoryMb } = await countSandboxes(db, org, null);
  const { working, waiting } = await countBuilds(db, org);
  return {
    runningSandboxes: running,
    sandboxes: kept,
    memoryMb,
    diskMb: await diskMbOf(db, org),
    runningBuilds: working,
    queuedBuilds: waiting,
  };
}

/**
 * Reads the organisation's sandboxes that have not ended, by the index `sandboxes_kept`. A sandbox that an operation has
 * paused only to start it again still counts as running, so that no other sandbox takes its place in between. Whether
 * `by` runs is read from its state alone, because its own operation asks.
 */
export async function countSandboxes(db: Queryable, org: string, by: SandboxId | null) {
  const [row] = await db.query<{ kept: number; running: number; memory: number }>(
    `SELECT COUNT(*) AS kept, COALESCE(SUM(runs), 0) AS running,
       CAST(COALESCE(SUM(CASE WHEN runs = 1 THEN memory_mb END), 0) AS {integer}) AS memory
     FROM (
       SELECT memory_mb, CASE WHEN state <> 'paused' OR EXISTS (
           SELECT 1 FROM operations o
           WHERE o.sandbox_id = sandboxes.id AND o.ended_at IS NULL AND o.sandbox_id <> $2
             AND o.kind IN ('snapshot', 'fork', 'rollback')
         ) THEN 1 ELSE 0 END AS runs
       FROM sandboxes
       WHERE org = $1 AND state IN ('creating', 'running', 'pausing', 'paused', 'resuming')
     ) AS kept_ones`,
    [org, by ?? ''],
  );
  return { kept: row?.kept ?? 0, running: row?.running ?? 0, memoryMb: row?.memory ?? 0 };
}

export async function diskMbOf(db: Queryable, org: string): Promise<number> {
  return Math.ceil((await checkpointBytes(db, org)) / MIB);
}

/** Checkpoints share files; each checkpoint counts with the bytes that were written for it. */
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

/** Processes that were left running in the background, as the database has them. */
import type { Queryable, Row, Transaction } from '@torpor/engine';
import type { SandboxId } from '@torpor/protocol';

export interface TrackedProcess {
  /** Also the tag by which the agent knows it: the id of the request that started it. */
  readonly id: string;
  readonly sandboxId: SandboxId;
  /** The start of the sandbox that it was started in. */
  readonly generation: number;
  readonly pid: number;
  readonly command: string;
  readonly cwd: string | null;
  readonly startedAt: number;
  readonly ended: 'exited' | 'lost' | null;
  readonly reason: string | null;
}

/** More than anybody looks at; older ones are forgotten. */
const KEPT = 200;

function toTracked(row: Row): TrackedProcess {
  return {
    id: row['id'],
    sandboxId: row['sandbox_id'],
    generation: row['generation'],
    pid: row['pid'],
    command: row['command'],
    cwd: row['cwd'],
    startedAt: row['started_at'],
    ended: row['ended'],
    reason: row['reason'],
  } as TrackedProcess;
}

export async function listTracked(db: Queryable, sandboxId: SandboxId): Promise<TrackedProcess[]> {
  const rows = await db.query(
    `SELECT id, sandbox_id, generation, pid, command, cwd, started_at, ended, reason FROM background_processes
     WHERE sandbox_id = $1 ORDER BY started_at, id`,
    [sandboxId],
  );
  return rows.map(toTracked);
}

export async function insertTracked(tx: Transaction, process: TrackedProcess): Promise<void> {
  await tx.query(
    `INSERT INTO background_processes (id, sandbox_id, generation, pid, command, cwd, started_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7)`,
    [
      process.id,
      process.sandboxId,
      process.generation,
      process.pid,
      process.command,
      process.cwd,
      process.startedAt,
    ],
  );
  await tx.query(
    `DELETE FROM background_processes WHERE sandbox_id = $1 AND id NOT IN (
       SELECT id FROM background_processes WHERE sandbox_id = $1 ORDER BY started_at DESC, id DESC LIMIT $2)`,
    [process.sandboxId, KEPT],
  );
}

/** What is known of an end stays: it cannot become untrue. */
export async function markEnded(
  tx: Transaction,
  id: string,
  ended: 'exited' | 'lost',
  reason: string,
): Promise<void> {
  await tx.query('UPDATE background_processes SET ended = $2, reason = $3 WHERE id = $1 AND ended IS NULL', [
    id,
    ended,
    reason,
  ]);
}

export async function forgetTracked(tx: Transaction, sandboxId: SandboxId): Promise<void> {
  await tx.query('DELETE FROM background_processes WHERE sandbox_id = $1', [sandboxId]);
}

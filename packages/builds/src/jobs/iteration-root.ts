/** The first build of a chain of iterations. Its row counts the iterations. */
import type { Queryable, Transaction } from '@torpor/engine';
import type { JobId } from '@torpor/protocol';
import { type BuildJob, toJob } from './job.ts';

const ROOT = `WITH RECURSIVE line (id, previous_id, kind) AS (
    SELECT id, previous_id, previous_kind FROM build_jobs WHERE id = $1
    UNION ALL
    SELECT j.id, j.previous_id, j.previous_kind FROM build_jobs j JOIN line ON j.id = line.previous_id
    WHERE line.kind = 'iteration'
  )
  SELECT * FROM build_jobs WHERE id IN (SELECT id FROM line) ORDER BY number LIMIT 1`;

export async function findRoot(db: Queryable, id: JobId): Promise<BuildJob | undefined> {
  const [row] = await db.query(ROOT, [id]);
  return row === undefined ? undefined : toJob(row);
}

/** Locks the row until the commit, so that two concurrent iterations are both counted. */
export async function lockRoot(tx: Transaction, id: JobId): Promise<BuildJob | undefined> {
  const [row] = await tx.query(`${ROOT} {FOR UPDATE}`, [id]);
  return row === undefined ? undefined : toJob(row);
}

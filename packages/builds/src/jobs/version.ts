/** Versions of a project's builds: `build_v0_N`, counted over the builds that became ready (R8). */
import type { Queryable, Transaction } from '@torpor/engine';

const VERSION = /^build_v0_(\d{1,9})$/;

export function nextVersion(ready: readonly (string | null)[]): string {
  const numbers = ready.map((version) => Number(VERSION.exec(version ?? '')?.[1] ?? 0));
  return `build_v0_${Math.max(0, ...numbers) + 1}`;
}

/** The version of a build that would become ready now. Another build may take it first. */
export async function predictVersion(db: Queryable, org: string, projectId: string): Promise<string> {
  return nextVersion(await readyVersions(db, org, projectId));
}

/**
 * The version of a build that becomes ready in this transaction. The project's row stays locked until the commit,
 * so that a second build counts the first (R9).
 */
export async function takeVersion(tx: Transaction, org: string, projectId: string): Promise<string> {
  await tx.query('SELECT id FROM build_projects WHERE org = $1 AND id = $2 {FOR UPDATE}', [org, projectId]);
  return nextVersion(await readyVersions(tx, org, projectId));
}

async function readyVersions(db: Queryable, org: string, projectId: string): Promise<(string | null)[]> {
  const rows = await db.query<{ build_version: string | null }>(
    `SELECT build_version FROM build_jobs WHERE org = $1 AND project_id = $2 AND status = 'ready'`,
    [org, projectId],
  );
  return rows.map(({ build_version }) => build_version);
}

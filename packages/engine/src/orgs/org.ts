/** Rows of organisations: one statement per function. */
import type { OrgView, QuotaName, Quotas, Retention } from '@torpor/protocol';
import { listPlaceholders } from '../ledger/placeholders.ts';
import type { Queryable, Row, Transaction } from '../ports/database.ts';
import { toRetention, toStoredRetention } from '../retention/policy.ts';

/** A total map: a quota without a column does not compile. */
const QUOTA_COLUMNS: Readonly<Record<QuotaName, string>> = {
  runningSandboxes: 'running_sandboxes',
  sandboxes: 'sandboxes',
  memoryMb: 'memory_mb',
  diskMb: 'disk_mb',
  runningBuilds: 'running_builds',
  queuedBuilds: 'queued_builds',
};
const COLUMNS = ['id', 'created_at', 'delete_paused_after_ms', ...Object.values(QUOTA_COLUMNS)].join(', ');

function toOrg(row: Row): OrgView {
  const quotas = Object.entries(QUOTA_COLUMNS).map(([name, column]) => [name, row[column]]);
  return {
    id: row['id'],
    createdAt: row['created_at'],
    quotas: Object.fromEntries(quotas),
    deletePausedAfterSeconds: toRetention(row['delete_paused_after_ms'] as number | null),
  } as OrgView;
}

/** Undefined when there is no such organisation, or it was deleted. */
export async function findOrg(db: Queryable, id: string): Promise<OrgView | undefined> {
  const [row] = await db.query(`SELECT ${COLUMNS} FROM orgs WHERE id = $1 AND deleted_at IS NULL`, [id]);
  return row === undefined ? undefined : toOrg(row);
}

/**
 * Locks the row until the commit. Code that adds something which a quota counts takes this lock before it counts, so that
 * two concurrent requests cannot both take the last place. The order of locks is: sandbox, organisation, head of the
 * ledger.
 */
export async function lockOrg(tx: Transaction, id: string): Promise<OrgView | undefined> {
  const [row] = await tx.query(
    `SELECT ${COLUMNS} FROM orgs WHERE id = $1 AND deleted_at IS NULL {FOR UPDATE}`,
    [id],
  );
  return row === undefined ? undefined : toOrg(row);
}

/** One page in the order of ids. */
export async function listOrgs(db: Queryable, after: string, limit: number): Promise<OrgView[]> {
  const rows = await db.query(
    `SELECT ${COLUMNS} FROM orgs WHERE id > $1 AND deleted_at IS NULL ORDER BY id LIMIT $2`,
    [after, limit],
  );
  return rows.map(toOrg);
}

/** How many builds each organisation may run at once. Organisations without this quota are not in the map. */
export async function runningBuildQuotas(db: Queryable): Promise<Map<string, number>> {
  const rows = await db.query<{ id: string; running_builds: number }>(
    'SELECT id, running_builds FROM orgs WHERE running_builds IS NOT NULL',
  );
  return new Map(rows.map((row) => [row.id, row.running_builds]));
}

/** False when an organisation has or had this id. */
export async function insertOrg(tx: Transaction, org: OrgView): Promise<boolean> {
  const names = Object.keys(QUOTA_COLUMNS) as QuotaName[];
  const rows = await tx.query(
    `INSERT INTO orgs (${COLUMNS}) VALUES ($1, $2, $3, ${listPlaceholders(names.length, 4)})
     ON CONFLICT (id) DO NOTHING RETURNING id`,
    [
      org.id,
      org.createdAt,
      toStoredRetention(org.deletePausedAfterSeconds),
      ...names.map((name) => org.quotas[name]),
    ],
  );
  return rows.length > 0;
}

/** The caller holds the row's lock. */
export async function updateQuotas(tx: Transaction, id: string, quotas: Quotas): Promise<void> {
  const names = Object.keys(QUOTA_COLUMNS) as QuotaName[];
  await tx.query(
    `UPDATE orgs SET ${names.map((name, i) => `${QUOTA_COLUMNS[name]} = $${i + 2}`).join(', ')} WHERE id = $1`,
    [id, ...names.map((name) => quotas[name])],
  );
}

/** Sets the retention of sandboxes that have none of their own. The caller holds the row's lock. */
export async function updateOrgRetention(tx: Transaction, id: string, retention: Retention): Promise<void> {
  await tx.query('UPDATE orgs SET delete_paused_after_ms = $2 WHERE id = $1', [
    id,
    toStoredRetention(retention),
  ]);
}

/** The caller holds the row's lock. The row stays, so that no other organisation ever gets the id. */
export async function markOrgDeleted(tx: Transaction, id: string, now: number): Promise<void> {
  await tx.query('UPDATE orgs SET deleted_at = $2 WHERE id = $1', [id, now]);
}

/** Rows of template builds. */
import type { Database, Queryable, Row, Transaction } from '@torpor/engine';
import { type CheckpointId, type Resources, resourcesSchema } from '@torpor/protocol';
import { z } from 'zod';

export interface TemplateBuild {
  readonly id: string;
  readonly org: string;
  /** Without a tag. */
  readonly template: string;
  readonly names: readonly string[];
  /** Limits of the sandboxes of the template. Absent limits are those of the base. */
  readonly resources: Resources;
  readonly status: 'waiting' | 'building' | 'ready' | 'error';
  readonly owner: string | null;
  /** How many servers have begun it. */
  readonly runs: number;
  /** What to build, for another server; null where none can. */
  readonly order: string | null;
  readonly checkpointId: CheckpointId | null;
  readonly reason: string | null;
  readonly step: string | null;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly finishedAt: number | null;
}

const namesSchema = z.array(z.string());

const COLUMNS =
  'id, org, template, names, resources, status, owner, runs, build_order, checkpoint_id, reason, step, created_at, updated_at, finished_at';

/** The constraints of the table keep these types. */
function toBuild(row: Row): TemplateBuild {
  return {
    id: row['id'] as string,
    org: row['org'] as string,
    template: row['template'] as string,
    names: namesSchema.parse(JSON.parse(row['names'] as string)),
    resources: resourcesSchema.parse(JSON.parse(row['resources'] as string)),
    status: row['status'] as TemplateBuild['status'],
    owner: row['owner'] as string | null,
    runs: row['runs'] as number,
    order: row['build_order'] as string | null,
    checkpointId: row['checkpoint_id'] as CheckpointId | null,
    reason: row['reason'] as string | null,
    step: row['step'] as string | null,
    createdAt: row['created_at'] as number,
    updatedAt: row['updated_at'] as number,
    finishedAt: row['finished_at'] as number | null,
  };
}

export async function insertBuild(
  tx: Transaction,
  { id, org, template, names, resources, createdAt }: TemplateBuild,
): Promise<void> {
  await tx.query(
    `INSERT INTO template_builds (id, org, template, names, resources, status, last_line, created_at, updated_at)
     VALUES ($1, $2, $3, $4, $5, 'waiting', 0, $6, $6)`,
    [id, org, template, JSON.stringify(names), JSON.stringify(resources), createdAt],
  );
}

export async function findBuild(
  db: Queryable,
  org: string,
  template: string,
  id: string,
): Promise<TemplateBuild | undefined> {
  const [row] = await db.query(
    `SELECT ${COLUMNS} FROM template_builds WHERE id = $1 AND org = $2 AND template = $3`,
    [id, org, template],
  );
  return row === undefined ? undefined : toBuild(row);
}

/** Newest first. */
export async function listBuilds(
  db: Queryable,
  org: string,
  template: string,
  limit: number,
): Promise<TemplateBuild[]> {
  const rows = await db.query(
    `SELECT ${COLUMNS} FROM template_builds WHERE org = $1 AND template = $2
     ORDER BY created_at DESC, id DESC LIMIT $3`,
    [org, template, limit],
  );
  return rows.map(toBuild);
}

/** The newest build of each template that made this checkpoint. */
export async function listMakers(db: Queryable, org: string): Promise<TemplateBuild[]> {
  const rows = await db.query(
    `SELECT ${COLUMNS} FROM template_builds WHERE org = $1 AND status = 'ready' ORDER BY created_at, id`,
    [org],
  );
  return rows.map(toBuild);
}

export async function countBuilds(
  tx: Queryable,
  org: string,
  status: 'waiting' | 'building',
): Promise<number> {
  const [row] = await tx.query<{ n: number }>(
    'SELECT CAST(COUNT(*) AS {integer}) AS n FROM template_builds WHERE org = $1 AND status = $2',
    [org, status],
  );
  return row?.n ?? 0;
}

/** False when the build was started before. The condition decides between two concurrent starts. */
export async function setBuilding(
  tx: Transaction,
  { id }: TemplateBuild,
  owner: string,
  order: string | null,
  now: number,
): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE template_builds SET status = 'building', owner = $2, updated_at = $3, runs = 1, build_order = $4
     WHERE id = $1 AND status = 'waiting' RETURNING id`,
    [id, owner, now, order],
  );
  return rows.length === 1;
}

/** Takes over a build whose server is gone. False when another server was faster: the condition decides. */
export async function takeOver(
  tx: Transaction,
  { id, owner: before }: TemplateBuild,
  owner: string,
  now: number,
): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE template_builds SET owner = $3, updated_at = $4, runs = runs + 1
     WHERE id = $1 AND owner = $2 AND status = 'building' RETURNING id`,
    [id, before, owner, now],
  );
  return rows.length === 1;
}

/** False when the build was ended by another server, or was deleted. */
export async function setReady(
  tx: Transaction,
  { id }: TemplateBuild,
  owner: string,
  checkpointId: CheckpointId,
  now: number,
): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE template_builds SET status = 'ready', owner = NULL, build_order = NULL, checkpoint_id = $3, updated_at = $4, finished_at = $4
     WHERE id = $1 AND owner = $2 RETURNING id`,
    [id, owner, checkpointId, now],
  );
  return rows.length === 1;
}

/** False when the build has ended already, or another server has taken it over. */
export async function setFailed(
  tx: Transaction,
  { id, owner }: Pick<TemplateBuild, 'id' | 'owner'>,
  failure: { readonly reason: string; readonly step: string | null },
  now: number,
): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE template_builds SET status = 'error', owner = NULL, build_order = NULL, reason = $2, step = $3, updated_at = $4, finished_at = $4
     WHERE id = $1 AND COALESCE(owner, '') = $5 AND finished_at IS NULL RETURNING id`,
    [id, failure.reason, failure.step, now, owner ?? ''],
  );
  return rows.length === 1;
}

/** Builds whose server is gone. */
export async function listAbandoned(db: Queryable, now: number): Promise<TemplateBuild[]> {
  const rows = await db.query(
    `SELECT ${COLUMNS} FROM template_builds
     WHERE status = 'building'
       AND NOT EXISTS (SELECT 1 FROM servers WHERE servers.id = owner AND lease_until > $1)`,
    [now],
  );
  return rows.map(toBuild);
}

/** The builds that run on a server. */
export async function listOpen(db: Queryable, owner: string): Promise<Set<string>> {
  const rows = await db.query<{ id: string }>(
    `SELECT id FROM template_builds WHERE status = 'building' AND owner = $1`,
    [owner],
  );
  return new Set(rows.map(({ id }) => id));
}

export async function listNeverStarted(db: Queryable, before: number): Promise<TemplateBuild[]> {
  const rows = await db.query(
    `SELECT ${COLUMNS} FROM template_builds WHERE status = 'waiting' AND created_at < $1`,
    [before],
  );
  return rows.map(toBuild);
}

/** Deletes finished builds with their logs. */
export async function deleteFinished(db: Database, before: number): Promise<void> {
  await db.transaction(async (tx) => {
    await tx.query(
      `DELETE FROM template_build_logs WHERE build_id IN
         (SELECT id FROM template_builds WHERE finished_at IS NOT NULL AND finished_at < $1)`,
      [before],
    );
    await tx.query('DELETE FROM template_builds WHERE finished_at IS NOT NULL AND finished_at < $1', [
      before,
    ]);
  });
}

/** A build that runs finds its row gone at its end, and names nothing. */
export async function deleteBuildsOf(db: Database, org: string, template: string): Promise<string[]> {
  return db.transaction(async (tx) => {
    await tx.query(
      `DELETE FROM template_build_logs WHERE build_id IN
         (SELECT id FROM template_builds WHERE org = $1 AND template = $2)`,
      [org, template],
    );
    const rows = await tx.query<{ id: string }>(
      'DELETE FROM template_builds WHERE org = $1 AND template = $2 RETURNING id',
      [org, template],
    );
    return rows.map(({ id }) => id);
  });
}

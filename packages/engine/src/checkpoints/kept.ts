/**
 * Checkpoints that a caller asked for as such: each stays, with or without a name, until a caller releases it or it
 * expires.
 */
import type { CheckpointId, SandboxId } from '@torpor/protocol';
import type { Context } from '../context.ts';
import type { Queryable } from '../ports/database.ts';
import { findCheckpoint } from './checkpoint.ts';
import { deleteIfUnreferenced, removeBytes } from './deletion.ts';

export interface Kept {
  readonly id: CheckpointId;
  readonly sandboxId: SandboxId | null;
  readonly createdAt: number;
  /** Null: until a caller releases it. */
  readonly expiresAt: number | null;
  /** The templates that are made from this checkpoint. */
  readonly templates: readonly string[];
}

export interface KeptPage {
  readonly sandboxId?: SandboxId | undefined;
  readonly template?: string | undefined;
  /** Leaves out checkpoints that expire, such as the steps of builds. */
  readonly forGood?: boolean | undefined;
  /** The last item of the previous page. */
  readonly after?: { readonly createdAt: number; readonly id: string } | undefined;
  readonly limit: number;
}

type KeptRow = {
  readonly id: CheckpointId;
  readonly sandbox_id: SandboxId | null;
  readonly created_at: number;
  readonly expires_at: number | null;
};

export async function listKept(
  db: Queryable,
  org: string,
  { sandboxId, template, forGood = false, after, limit }: KeptPage,
): Promise<Kept[]> {
  const params: (string | number)[] = [];
  const mark = (value: string | number) => `$${params.push(value)}`;
  const conditions = [`c.org = ${mark(org)}`, `c.state = 'sealed'`, 'c.kept = 1'];
  if (forGood) conditions.push('c.expires_at IS NULL');
  if (sandboxId !== undefined) conditions.push(`c.sandbox_id = ${mark(sandboxId)}`);
  if (template !== undefined) {
    conditions.push(
      `EXISTS (SELECT 1 FROM templates t WHERE t.checkpoint_id = c.id AND t.org = c.org AND t.name = ${mark(template)})`,
    );
  }
  if (after !== undefined) {
    const at = mark(after.createdAt);
    conditions.push(`(c.created_at < ${at} OR (c.created_at = ${at} AND c.id < ${mark(after.id)}))`);
  }
  const rows = await db.query<KeptRow>(
    `SELECT c.id, c.sandbox_id, c.created_at, c.expires_at FROM checkpoints c WHERE ${conditions.join(' AND ')}
     ORDER BY c.created_at DESC, c.id DESC LIMIT ${mark(limit)}`,
    params,
  );
  return Promise.all(rows.map((row) => withTemplates(db, org, row)));
}

export async function findKept(db: Queryable, org: string, id: CheckpointId): Promise<Kept | undefined> {
  const [row] = await db.query<KeptRow>(
    `SELECT id, sandbox_id, created_at, expires_at FROM checkpoints
     WHERE id = $1 AND org = $2 AND state = 'sealed' AND kept = 1`,
    [id, org],
  );
  return row === undefined ? undefined : withTemplates(db, org, row);
}

async function withTemplates(db: Queryable, org: string, row: KeptRow): Promise<Kept> {
  const templates = await db.query<{ name: string }>(
    'SELECT name FROM templates WHERE org = $1 AND checkpoint_id = $2 ORDER BY name',
    [org, row.id],
  );
  return {
    id: row.id,
    sandboxId: row.sandbox_id,
    createdAt: row.created_at,
    expiresAt: row.expires_at,
    templates: templates.map(({ name }) => name),
  };
}

/**
 * Ends the keeping of a checkpoint and deletes its names and templates; returns whether it was kept. Sandboxes that
 * use the checkpoint go on; its bytes are removed when the last of them is gone, as the foreign keys allow.
 */
export async function releaseCheckpoint(ctx: Context, org: string, id: CheckpointId): Promise<boolean> {
  const wasKept = await ctx.db.transaction(async (tx) => {
    const rows = await tx.query(
      `UPDATE checkpoints SET kept = 0 WHERE id = $1 AND org = $2 AND state = 'sealed' AND kept = 1 RETURNING id`,
      [id, org],
    );
    if (rows.length === 0) return false;
    await tx.query('DELETE FROM templates WHERE org = $1 AND checkpoint_id = $2', [org, id]);
    await tx.query('DELETE FROM checkpoint_names WHERE checkpoint_id = $1', [id]);
    return true;
  });
  const checkpoint = wasKept ? await findCheckpoint(ctx.db, id) : undefined;
  if (checkpoint !== undefined && (await deleteIfUnreferenced(ctx, id, 'request'))) {
    ctx.background.run(`removing checkpoint ${id}`, () =>
      removeBytes(ctx, { ...checkpoint, state: 'deleted' }),
    );
  }
  return wasKept;
}

/**
 * Which checkpoints are deleted. A checkpoint that anything refers to is never deleted: the foreign keys refuse
 * it, and the queries here find the checkpoints that the foreign keys allow to delete.
 *
 * A checkpoint is first marked as deleted in the database, then its bytes are removed. A crash in between leaves
 * bytes that the next round finds by their row.
 */
import { type Actor, type CheckpointId, type EventData, type SandboxId, TorporError } from '@torpor/protocol';
import { type Context, runtimeOf } from '../context.ts';
import { recordEvent } from '../ledger/transition.ts';
import { ConstraintViolation, type Queryable } from '../ports/database.ts';
import { lockSandboxOf } from '../sandbox.ts';
import { withTimeout } from '../with-timeout.ts';
import {
  CHECKPOINT_COLUMNS,
  type Checkpoint,
  findCheckpoint,
  getCheckpoint,
  markDeleted,
  toCheckpoint,
  toSealedCheckpoint,
} from './checkpoint.ts';

/** No sandbox, template or other checkpoint uses the checkpoint. */
const UNREFERENCED = `
  NOT EXISTS (SELECT 1 FROM sandboxes s WHERE s.checkpoint_id = c.id)
  AND NOT EXISTS (SELECT 1 FROM sandboxes s WHERE s.base_id = c.id)
  AND NOT EXISTS (SELECT 1 FROM checkpoint_stands_on o WHERE o.other_id = c.id)
  AND NOT EXISTS (SELECT 1 FROM templates t WHERE t.checkpoint_id = c.id)`;

const UNNAMED = 'NOT EXISTS (SELECT 1 FROM checkpoint_names n WHERE n.checkpoint_id = c.id)';

/** A live sandbox keeps some of its earlier checkpoints for the fallback "previous". */
export async function listCollectable(
  db: Queryable,
  node: string,
  keepPrevious: number,
  after: string,
  limit: number,
): Promise<Checkpoint[]> {
  const rows = await db.query(
    `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints c
     WHERE c.state = 'sealed' AND c.kept = 0 AND c.expires_at IS NULL AND c.id > $2 AND c.node = $4 AND ${UNREFERENCED} AND ${UNNAMED}
       AND (
         NOT EXISTS (
           SELECT 1 FROM sandboxes s
           WHERE s.id = c.sandbox_id AND s.state NOT IN ('killed', 'failed', 'lost')
         )
         OR $1 <= (
           SELECT COUNT(*) FROM checkpoints newer
           WHERE newer.sandbox_id = c.sandbox_id AND newer.state = 'sealed'
             AND newer.seq > c.seq
             AND NOT EXISTS (SELECT 1 FROM sandboxes s WHERE s.checkpoint_id = newer.id)
         )
       )
     ORDER BY c.id LIMIT $3`,
    [keepPrevious, after, limit, node],
  );
  return rows.map(toCheckpoint);
}

/** Deletes the checkpoint unless anything refers to it at this moment. Returns whether it is deleted. */
export async function deleteIfUnreferenced(
  ctx: Context,
  id: CheckpointId,
  why: EventData<'checkpoint.deleted'>['why'],
  by?: Actor,
): Promise<boolean> {
  const checkpoint = await findCheckpoint(ctx.db, id);
  if (checkpoint === undefined || checkpoint.state === 'deleted') return false;
  try {
    await ctx.db.transaction(async (tx) => {
      const sandbox = await lockSandboxOf(tx, checkpoint.sandboxId);
      if (why !== 'unreferenced')
        await tx.query('DELETE FROM checkpoint_names WHERE checkpoint_id = $1', [id]);
      const news = await markDeleted(tx, id, ctx.clock.now());
      if (sandbox === undefined || !news) return;
      await recordEvent(
        ctx,
        tx,
        sandbox,
        'checkpoint.deleted',
        { checkpointId: id, why },
        { operationId: null, by },
      );
    });
    return true;
  } catch (thrown) {
    // A sandbox, a name or another checkpoint refers to it since the query: the checkpoint stays.
    if (thrown instanceof ConstraintViolation) return false;
    throw thrown;
  }
}

/** Deletes at a caller's request; refuses with the users of the checkpoint when it has any. */
export async function deleteCheckpoint(
  ctx: Context,
  org: string,
  id: CheckpointId,
  by?: Actor,
): Promise<void> {
  const checkpoint = await getCheckpoint(ctx.db, id, org);
  if (checkpoint.state === 'deleted') return;
  if (
    checkpoint.org === org &&
    checkpoint.state === 'sealed' &&
    (await deleteIfUnreferenced(ctx, id, 'request', by))
  ) {
    ctx.background.run(`removing checkpoint ${id}`, () =>
      removeBytes(ctx, { ...checkpoint, state: 'deleted' }),
    );
    return;
  }
  const users = await ctx.db.query<{ id: string }>(
    'SELECT id FROM sandboxes WHERE checkpoint_id = $1 OR base_id = $1 ORDER BY id LIMIT 10',
    [id],
  );
  const templates = await ctx.db.query<{ name: string }>(
    'SELECT name FROM templates WHERE checkpoint_id = $1 ORDER BY name LIMIT 10',
    [id],
  );
  throw new TorporError('conflict', `Checkpoint ${id} is in use and stays.`, {
    checkpointId: id,
    details: {
      usedBy: users.map((row) => row.id),
      templates: templates.map((row) => row.name),
      state: checkpoint.state,
    },
    hint: 'Kill or move on the sandboxes that stand on it first, and delete the templates that name it.',
  });
}

/** Removes the bytes of a deleted checkpoint, wherever they are. May be repeated. */
export async function removeBytes(ctx: Context, checkpoint: Checkpoint): Promise<void> {
  await withTimeout(
    ctx.clock,
    ctx.settings.callMs,
    `Removing checkpoint ${checkpoint.id}`,
    async (signal) => {
      await runtimeOf(ctx, checkpoint).discard(toSealedCheckpoint(ctx.store, checkpoint), signal);
      await ctx.store.remove(checkpoint.id);
    },
  );
  // Another node has bytes of its own, and removes them in its own round.
  if (checkpoint.node !== ctx.node.name) return;
  await ctx.db.transaction((tx) =>
    tx.query('UPDATE checkpoints SET removed_at = $2 WHERE id = $1', [checkpoint.id, ctx.clock.now()]),
  );
}

export async function listToRemove(
  db: Queryable,
  node: string,
  after: string,
  limit: number,
): Promise<Checkpoint[]> {
  const rows = await db.query(
    `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints
     WHERE state = 'deleted' AND removed_at IS NULL AND id > $1 AND node = $3 ORDER BY id LIMIT $2`,
    [after, limit, node],
  );
  return rows.map(toCheckpoint);
}

/** Rows of checkpoints whose operation has ended, or whose server died while making a built-in template. */
export async function listUnfinished(
  db: Queryable,
  node: string,
  now: number,
  abandonedAfterMs: number,
  after: string,
  limit: number,
): Promise<Checkpoint[]> {
  const rows = await db.query(
    `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints c
     WHERE c.state = 'writing' AND c.id > $1 AND c.node = $5
       AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.id = c.operation_id AND o.ended_at IS NULL)
       AND NOT EXISTS (SELECT 1 FROM templates t WHERE t.writing_id = c.id)
       AND (c.operation_id IS NOT NULL OR c.created_at + $3 < $4)
     ORDER BY c.id LIMIT $2`,
    [after, limit, abandonedAfterMs, now, node],
  );
  return rows.map(toCheckpoint);
}

/** Sealed checkpoints whose expiry is near and not yet announced. */
export async function listExpiring(
  db: Queryable,
  node: string,
  before: number,
  limit: number,
): Promise<Checkpoint[]> {
  const rows = await db.query(
    `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints
     WHERE state = 'sealed' AND expires_at IS NOT NULL AND expires_at <= $1 AND expiry_announced_at IS NULL
       AND node = $3
     ORDER BY expires_at LIMIT $2`,
    [before, limit, node],
  );
  return rows.map(toCheckpoint);
}

/** Expired checkpoints whose expiry was announced and that no sandbox uses. */
export async function listExpired(
  db: Queryable,
  node: string,
  now: number,
  limit: number,
): Promise<Checkpoint[]> {
  const rows = await db.query(
    `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints c
     WHERE c.state = 'sealed' AND c.expires_at IS NOT NULL AND c.expires_at <= $1
       AND c.expiry_announced_at IS NOT NULL AND c.node = $3 AND ${UNREFERENCED}
     ORDER BY c.expires_at LIMIT $2`,
    [now, limit, node],
  );
  return rows.map(toCheckpoint);
}

export async function announceExpiry(ctx: Context, checkpoint: Checkpoint): Promise<void> {
  const { id, expiresAt } = checkpoint;
  if (expiresAt === null) return;
  await ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandboxOf(tx, checkpoint.sandboxId);
    await tx.query('UPDATE checkpoints SET expiry_announced_at = $2 WHERE id = $1', [id, ctx.clock.now()]);
    if (sandbox === undefined) return;
    await recordEvent(
      ctx,
      tx,
      sandbox,
      'checkpoint.expiring',
      { checkpointId: id, expiresAt },
      { operationId: null },
    );
  });
}

/** The checkpoints that were not read for the longest time. */
export async function listToScrub(
  db: Queryable,
  node: string,
  before: number,
  limit: number,
): Promise<Checkpoint[]> {
  const rows = await db.query(
    `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints
     WHERE state = 'sealed' AND scrubbed_at <= $1 AND node = $3 ORDER BY scrubbed_at, id LIMIT $2`,
    [before, limit, node],
  );
  return rows.map(toCheckpoint);
}

/** Bytes of a sandbox's own checkpoints. */
export async function bytesOf(db: Queryable, sandboxId: SandboxId): Promise<number> {
  const [row] = await db.query<{ bytes: number }>(
    `SELECT CAST(COALESCE(SUM(bytes), 0) AS {integer}) AS bytes FROM checkpoints
     WHERE sandbox_id = $1 AND state = 'sealed'`,
    [sandboxId],
  );
  return row?.bytes ?? 0;
}

/** Templates: named first checkpoints. The runtime makes the bytes, once; every create starts from them. */
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { sealCaptured } from './acts/seal.ts';
import {
  CHECKPOINT_COLUMNS,
  type Checkpoint,
  insertWriting,
  markDeleted,
  markSealed,
  toCheckpoint,
} from './checkpoints/checkpoint.ts';
import type { Context } from './context.ts';
import type { Queryable, Transaction } from './ports/database.ts';
import type { Runtime } from './ports/runtime.ts';
import { within } from './within.ts';

/** The organisation that templates belong to: nobody's, so everybody may start from them. */
const EVERYBODY = '';

async function findTemplate(db: Queryable, runtime: string, name: string): Promise<Checkpoint | undefined> {
  const columns = CHECKPOINT_COLUMNS.split(',').map((column) => `c.${column.trim()}`);
  const [row] = await db.query(
    `SELECT ${columns.join(', ')} FROM templates t JOIN checkpoints c ON c.id = t.checkpoint_id
     WHERE t.runtime = $1 AND t.name = $2`,
    [runtime, name],
  );
  return row === undefined ? undefined : toCheckpoint(row);
}

export async function templateCheckpoint(ctx: Context, runtime: string, name: string): Promise<Checkpoint> {
  const checkpoint = await findTemplate(ctx.db, runtime, name);
  if (checkpoint === undefined) {
    throw new TorporError('not_found', `The runtime "${runtime}" has no template "${name}".`, {
      hint: 'GET /v1/templates lists what there is.',
    });
  }
  return checkpoint;
}

export interface TemplateRow {
  readonly runtime: string;
  readonly name: string;
  readonly checkpointId: CheckpointId;
  readonly createdAt: number;
}

export async function listTemplates(db: Queryable): Promise<TemplateRow[]> {
  const rows = await db.query(
    'SELECT runtime, name, checkpoint_id, created_at FROM templates ORDER BY name, runtime',
  );
  return rows.map(
    (row) =>
      ({
        runtime: row['runtime'],
        name: row['name'],
        checkpointId: row['checkpoint_id'],
        createdAt: row['created_at'],
      }) as TemplateRow,
  );
}

/** Makes the template's checkpoint if it is not there. Two servers at once: one wins, the other uses it. */
export async function ensureTemplate(ctx: Context, runtime: Runtime, name: string): Promise<Checkpoint> {
  const there = await findTemplate(ctx.db, runtime.name, name);
  if (there !== undefined) return there;
  const id = ctx.ids.next('ckpt');
  const row = {
    id,
    org: EVERYBODY,
    sandboxId: null,
    generation: null,
    seq: 0,
    parentId: null,
    runtime: runtime.name,
    operationId: null,
  };
  await ctx.db.transaction((tx) => insertWriting(tx, row, ctx.clock.now()));
  const sealed = await within(
    ctx.clock,
    ctx.settings.operationMs,
    `Preparing template "${name}"`,
    async (signal) => {
      const staging = await ctx.store.stage(id, signal);
      const captured = await runtime.prepareTemplate(name, staging, signal);
      return sealCaptured(ctx, staging, captured, { id: null, baseId: null, runtime: runtime.name }, signal);
    },
  ).catch(async (thrown: unknown) => {
    await ctx.db.transaction((tx) => markDeleted(tx, id, ctx.clock.now()));
    throw thrown;
  });
  await ctx.db.transaction(async (tx) => {
    const now = ctx.clock.now();
    if (await insertTemplate(tx, runtime.name, name, id, now, sealed)) return;
    await markDeleted(tx, id, now);
  });
  return templateCheckpoint(ctx, runtime.name, name);
}

async function insertTemplate(
  tx: Transaction,
  runtime: string,
  name: string,
  id: CheckpointId,
  now: number,
  sealed: Parameters<typeof markSealed>[2],
): Promise<boolean> {
  if ((await findTemplate(tx, runtime, name)) !== undefined) return false;
  await markSealed(tx, id, sealed, { recovered: false, kept: false, expiresAt: null }, now);
  const rows = await tx.query(
    `INSERT INTO templates (runtime, name, checkpoint_id, created_at) VALUES ($1, $2, $3, $4)
     ON CONFLICT (runtime, name) DO NOTHING RETURNING name`,
    [runtime, name, id, now],
  );
  return rows.length === 1;
}

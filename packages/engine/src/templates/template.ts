/** Rows of templates, and how a name is resolved to one. */
import {
  type CheckpointId,
  type ErrorBody,
  type Service,
  type TemplateDefinition,
  type TemplateState,
  TorporError,
} from '@torpor/protocol';
import { type Checkpoint, findCheckpoint, SHARED_ORG } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import type { Queryable, Row, Transaction } from '../ports/database.ts';

/** What a sandbox made from a template gets in addition to its files. */
export interface Definition {
  readonly description: string | null;
  readonly services: readonly Service[];
  readonly env: Readonly<Record<string, string>>;
}

export interface Template {
  readonly org: string;
  readonly name: string;
  readonly runtime: string;
  readonly definition: Definition;
  readonly state: TemplateState;
  /** Set when the template is ready. */
  readonly checkpointId: CheckpointId | null;
  /** The checkpoint that is being written, and by which server, while the template is prepared. */
  readonly writingId: CheckpointId | null;
  readonly owner: string | null;
  readonly phase: string | null;
  readonly error: ErrorBody | null;
  readonly createdAt: number;
}

const COLUMNS =
  'org, name, runtime, definition, state, checkpoint_id, writing_id, owner, phase, error, created_at';

function toTemplate(row: Row): Template {
  return {
    org: row['org'],
    name: row['name'],
    runtime: row['runtime'],
    definition: JSON.parse(String(row['definition'])),
    state: row['state'],
    checkpointId: row['checkpoint_id'],
    writingId: row['writing_id'],
    owner: row['owner'],
    phase: row['phase'],
    error: row['error'] === null ? null : JSON.parse(String(row['error'])),
    createdAt: row['created_at'],
  } as Template;
}

export function definitionOf({ description, services, env }: TemplateDefinition): Definition {
  return { description: description ?? null, services: services ?? [], env: env ?? {} };
}

async function findOwn(db: Queryable, org: string, name: string): Promise<Template | undefined> {
  const [row] = await db.query(`SELECT ${COLUMNS} FROM templates WHERE org = $1 AND name = $2`, [org, name]);
  return row === undefined ? undefined : toTemplate(row);
}

export async function findBuiltIn(
  db: Queryable,
  runtime: string,
  name: string,
): Promise<Template | undefined> {
  const [row] = await db.query(
    `SELECT ${COLUMNS} FROM templates WHERE org = $1 AND name = $2 AND runtime = $3`,
    [SHARED_ORG, name, runtime],
  );
  return row === undefined ? undefined : toTemplate(row);
}

/** The organisation's own template, else the built-in template of the runtime. */
export async function findTemplate(
  ctx: Context,
  org: string,
  name: string,
  runtime?: string,
): Promise<Template | undefined> {
  const own = await findOwn(ctx.db, org, name);
  if (own === undefined) return findBuiltIn(ctx.db, runtime ?? ctx.defaultRuntime, name);
  return runtime === undefined || own.runtime === runtime ? own : undefined;
}

export async function getTemplate(
  ctx: Context,
  org: string,
  name: string,
  runtime?: string,
): Promise<Template> {
  const template = await findTemplate(ctx, org, name, runtime);
  if (template !== undefined) return template;
  const where = runtime === undefined ? 'There is' : `The runtime "${runtime}" has`;
  throw new TorporError('not_found', `${where} no template "${name}".`, {
    hint: 'GET /v1/templates lists the templates.',
  });
}

/** The checkpoint that a sandbox made from the template starts from. */
export async function firstCheckpoint(db: Queryable, template: Template): Promise<Checkpoint> {
  const { name, state, phase, error, checkpointId } = template;
  if (state === 'preparing') {
    throw new TorporError('transitioning', `The template "${name}" is still being prepared.`, {
      details: { phase },
      hint: 'GET /v1/templates/{name} says how far it has come. Wait until it is ready.',
    });
  }
  const checkpoint = checkpointId === null ? undefined : await findCheckpoint(db, checkpointId);
  if (checkpoint !== undefined) return checkpoint;
  throw new TorporError('conflict', `The template "${name}" could not be made: ${error?.message}`, {
    hint: 'Create the template again, or delete it.',
  });
}

/** The organisation's own templates and the built-in ones. */
export async function listTemplates(db: Queryable, org: string): Promise<Template[]> {
  const rows = await db.query(
    `SELECT ${COLUMNS} FROM templates WHERE org = $1 OR org = $2 ORDER BY name, org, runtime`,
    [org, SHARED_ORG],
  );
  return rows.map(toTemplate);
}

/** Templates in preparation whose server is gone, or that have been in preparation for too long. */
export async function listAbandoned(db: Queryable, now: number, oldest: number): Promise<Template[]> {
  const rows = await db.query(
    `SELECT ${COLUMNS} FROM templates
     WHERE state = 'preparing' AND (created_at < $2
       OR NOT EXISTS (SELECT 1 FROM servers WHERE servers.id = owner AND lease_until > $1))`,
    [now, oldest],
  );
  return rows.map(toTemplate);
}

/** False when another insert of the same name came first. */
export async function insertTemplate(tx: Transaction, template: Template): Promise<boolean> {
  const rows = await tx.query(
    `INSERT INTO templates (org, name, runtime, definition, state, checkpoint_id, writing_id, owner, created_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING RETURNING name`,
    [
      template.org,
      template.name,
      template.runtime,
      JSON.stringify(template.definition),
      template.state,
      template.checkpointId,
      template.writingId,
      template.owner,
      template.createdAt,
    ],
  );
  return rows.length === 1;
}

/** Replaces the checkpoint of a built-in template. False when another server has replaced the old checkpoint already. */
export async function replaceCheckpoint(
  tx: Transaction,
  runtime: string,
  name: string,
  old: CheckpointId,
  next: CheckpointId,
): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE templates SET checkpoint_id = $5
     WHERE org = $1 AND name = $2 AND runtime = $3 AND checkpoint_id = $4 RETURNING name`,
    [SHARED_ORG, name, runtime, old, next],
  );
  return rows.length === 1;
}

/** Writes the phase. False when the template is no longer being prepared into this checkpoint. */
export async function setPreparing(
  tx: Transaction,
  { org, name, writingId }: Template,
  phase: string,
): Promise<boolean> {
  const rows = await tx.query(
    'UPDATE templates SET phase = $4 WHERE org = $1 AND name = $2 AND writing_id = $3 RETURNING name',
    [org, name, writingId, phase],
  );
  return rows.length === 1;
}

/** The checkpoint is sealed in the same transaction, before this. False when another server has ended the preparation. */
export async function setReady(tx: Transaction, { org, name, writingId }: Template): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE templates SET state = 'ready', checkpoint_id = writing_id, writing_id = NULL, owner = NULL, phase = NULL
     WHERE org = $1 AND name = $2 AND writing_id = $3 RETURNING name`,
    [org, name, writingId],
  );
  return rows.length === 1;
}

/** Keeps the reason for callers who did not wait. False when the template was no longer being prepared. */
export async function setFailed(
  tx: Transaction,
  { org, name, writingId }: Template,
  error: TorporError,
): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE templates SET state = 'failed', error = $4, writing_id = NULL, owner = NULL, phase = NULL
     WHERE org = $1 AND name = $2 AND writing_id = $3 RETURNING name`,
    [org, name, writingId, JSON.stringify(error.toBody())],
  );
  return rows.length === 1;
}

export async function deletePreparing(tx: Transaction, { org, name, writingId }: Template): Promise<void> {
  await tx.query('DELETE FROM templates WHERE org = $1 AND name = $2 AND writing_id = $3', [
    org,
    name,
    writingId,
  ]);
}

/** Deletes failed templates that are older than `before`. */
export async function deleteFailed(tx: Transaction, before: number): Promise<void> {
  await tx.query("DELETE FROM templates WHERE state = 'failed' AND created_at < $1", [before]);
}

/** Rows of templates, and how a name is resolved to one. */
import {
  type CheckpointId,
  type ErrorBody,
  resourcesSchema,
  serviceSchema,
  type TemplateDefinition,
  type TemplateState,
  TorporError,
  templateImageSchema,
  templateRootSchema,
} from '@torpor/protocol';
import { z } from 'zod';
import { type Checkpoint, findCheckpoint, SHARED_ORG } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import type { Queryable, Row, Transaction } from '../ports/database.ts';
import { parseStoredError } from '../stored-error.ts';

/** Unknown fields are dropped, so that rows of a newer version stay readable. */
const definitionSchema = z.object({
  /** Null for the name of a checkpoint of a sandbox; absent in rows of earlier versions. */
  root: templateRootSchema.nullish(),
  /** Null unless the template was made from an image. */
  image: templateImageSchema.nullish(),
  /** The user and directory of commands that name none. Absent: those of the runtime. */
  user: z.string().optional(),
  workdir: z.string().optional(),
  description: z.string().nullable(),
  services: z.array(z.object(serviceSchema.shape)),
  env: z.record(z.string(), z.string()),
  /** The limits of sandboxes whose request sets none. Rows of earlier versions have none. */
  resources: z.object(resourcesSchema.shape).default({}),
});

/** What a sandbox made from a template gets in addition to its files. */
export type Definition = Readonly<z.infer<typeof definitionSchema>>;

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

/** A row of the table; its constraints keep these types. */
interface TemplateRow extends Row {
  readonly org: string;
  readonly name: string;
  readonly runtime: string;
  readonly definition: string;
  readonly state: TemplateState;
  readonly checkpoint_id: CheckpointId | null;
  readonly writing_id: CheckpointId | null;
  readonly owner: string | null;
  readonly phase: string | null;
  readonly error: string | null;
  readonly created_at: number;
}

/** `found` has the columns of `COLUMNS`. */
function toTemplate(found: Row): Template {
  const row = found as TemplateRow;
  return {
    org: row.org,
    name: row.name,
    runtime: row.runtime,
    definition: definitionSchema.parse(JSON.parse(row.definition)),
    state: row.state,
    checkpointId: row.checkpoint_id,
    writingId: row.writing_id,
    owner: row.owner,
    phase: row.phase,
    error: parseStoredError(row.error),
    createdAt: row.created_at,
  };
}

export function definitionOf(definition: TemplateDefinition): Definition {
  const { description = null, services = [], env = {}, user, workdir, resources = {} } = definition;
  return { description, services, env, user, workdir, resources };
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

/** The organisation's own templates, and the built-in ones that they do not hide. */
export async function listTemplates(db: Queryable, org: string): Promise<Template[]> {
  const rows = await db.query(
    `SELECT ${COLUMNS} FROM templates WHERE org = $1 OR org = $2 ORDER BY name, org, runtime`,
    [org, SHARED_ORG],
  );
  const templates = rows.map(toTemplate);
  const own = new Set(templates.filter((one) => one.org === org).map(({ name }) => name));
  return templates.filter((one) => one.org === org || !own.has(one.name));
}

/** Templates in preparation on this node whose server is gone, or that have been in preparation for too long. */
export async function listAbandoned(
  db: Queryable,
  node: string,
  now: number,
  oldest: number,
): Promise<Template[]> {
  const rows = await db.query(
    `SELECT ${COLUMNS} FROM templates
     WHERE state = 'preparing' AND (created_at < $2
       OR NOT EXISTS (SELECT 1 FROM servers WHERE servers.id = owner AND lease_until > $1))
       AND EXISTS (SELECT 1 FROM checkpoints c WHERE c.id = writing_id AND c.node = $3)`,
    [now, oldest, node],
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
  { runtime, name, checkpointId: old }: Template,
  next: CheckpointId,
  definition: Definition,
): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE templates SET checkpoint_id = $5, definition = $6, phase = NULL
     WHERE org = $1 AND name = $2 AND runtime = $3 AND checkpoint_id = $4 RETURNING name`,
    [SHARED_ORG, name, runtime, old, next, JSON.stringify(definition)],
  );
  return rows.length === 1;
}

/** Writes how far the next version of a built-in template is; null when none is being made. */
export async function setBuiltInPhase(
  tx: Transaction,
  runtime: string,
  name: string,
  phase: string | null,
): Promise<void> {
  await tx.query('UPDATE templates SET phase = $4 WHERE org = $1 AND name = $2 AND runtime = $3', [
    SHARED_ORG,
    name,
    runtime,
    phase,
  ]);
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
export async function setReady(
  tx: Transaction,
  { org, name, writingId }: Template,
  definition: Definition,
): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE templates SET state = 'ready', checkpoint_id = writing_id, writing_id = NULL, owner = NULL, phase = NULL,
       definition = $4
     WHERE org = $1 AND name = $2 AND writing_id = $3 RETURNING name`,
    [org, name, writingId, JSON.stringify(definition)],
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

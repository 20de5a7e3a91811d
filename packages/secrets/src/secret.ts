/** Secrets as the database has them. */
import type { Queryable, Row, Transaction } from '@torpor/engine';
import { type SandboxId, type SecretView, secretViewSchema } from '@torpor/protocol';

export interface Secret extends SecretView {
  readonly org: string;
  /** Encrypted. */
  readonly value: string;
  readonly generated: boolean;
}

const COLUMNS = [
  'org',
  'name',
  'host',
  'header',
  'prefix',
  'methods',
  'path',
  'value',
  'generated',
  'created_at',
  'updated_at',
];
const columns = (table = 'secrets') => COLUMNS.map((column) => `${table}.${column}`).join(', ');

function toSecret(row: Row): Secret {
  const methods = row['methods'] as string | null;
  return {
    org: String(row['org']),
    name: String(row['name']),
    host: String(row['host']),
    header: String(row['header']),
    prefix: row['prefix'] as string | null,
    methods: methods === null ? null : secretViewSchema.shape.methods.parse(JSON.parse(methods)),
    path: row['path'] as string | null,
    value: String(row['value']),
    generated: Number(row['generated']) === 1,
    createdAt: Number(row['created_at']),
    updatedAt: Number(row['updated_at']),
  };
}

export function toView({ org: _org, value: _value, generated: _generated, ...view }: Secret): SecretView {
  return view;
}

/** Keeps the time of the first creation. */
export async function upsertSecret(tx: Transaction, secret: Secret): Promise<void> {
  await tx.query(
    `INSERT INTO secrets (${COLUMNS.join(', ')}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
     ON CONFLICT (org, name) DO UPDATE SET host = $3, header = $4, prefix = $5, methods = $6, path = $7, value = $8,
       updated_at = $11`,
    [
      secret.org,
      secret.name,
      secret.host,
      secret.header,
      secret.prefix,
      secret.methods === null ? null : JSON.stringify(secret.methods),
      secret.path,
      secret.value,
      secret.generated ? 1 : 0,
      secret.createdAt,
      secret.updatedAt,
    ],
  );
}

export async function findSecret(db: Queryable, org: string, name: string): Promise<Secret | undefined> {
  const [row] = await db.query(`SELECT ${columns()} FROM secrets WHERE org = $1 AND name = $2`, [org, name]);
  return row === undefined ? undefined : toSecret(row);
}

/** Those of the names that exist in the organisation of the sandbox. */
export async function secretsOfSandbox(
  db: Queryable,
  id: SandboxId,
  names: readonly string[],
): Promise<Secret[]> {
  if (names.length === 0) return [];
  const marks = names.map((_, index) => `$${index + 2}`).join(', ');
  const rows = await db.query(
    `SELECT ${columns('s')} FROM secrets s JOIN sandboxes b ON b.org = s.org WHERE b.id = $1 AND s.name IN (${marks})`,
    [id, ...names],
  );
  return rows.map(toSecret);
}

export async function existingNames(db: Queryable, org: string, names: readonly string[]): Promise<string[]> {
  if (names.length === 0) return [];
  const marks = names.map((_, index) => `$${index + 2}`).join(', ');
  const rows = await db.query<{ name: string }>(
    `SELECT name FROM secrets WHERE org = $1 AND name IN (${marks})`,
    [org, ...names],
  );
  return rows.map(({ name }) => name);
}

/** Without generated ones, in the order of names. */
export async function listSecrets(
  db: Queryable,
  org: string,
  after: string,
  limit: number,
): Promise<Secret[]> {
  const rows = await db.query(
    `SELECT ${columns()} FROM secrets WHERE org = $1 AND generated = 0 AND name > $2 ORDER BY name LIMIT $3`,
    [org, after, limit],
  );
  return rows.map(toSecret);
}

export async function countSecrets(db: Queryable, org: string, generated: boolean): Promise<number> {
  const [row] = await db.query<{ n: number }>(
    'SELECT COUNT(*) AS n FROM secrets WHERE org = $1 AND generated = $2',
    [org, generated ? 1 : 0],
  );
  return row?.n ?? 0;
}

export async function deleteSecret(tx: Transaction, org: string, name: string): Promise<void> {
  await tx.query('DELETE FROM secrets WHERE org = $1 AND name = $2', [org, name]);
}

/**
 * Removes generated secrets that no living sandbox names. Those that are younger than `before` stay: the sandbox that they
 * were made for may not exist yet. Their names are random, so a text search in the configuration cannot be mistaken.
 */
export async function deleteUnused(tx: Transaction, org: string, before: number): Promise<void> {
  await tx.query(
    `DELETE FROM secrets WHERE org = $1 AND generated = 1 AND updated_at < $2 AND NOT EXISTS (
       SELECT 1 FROM sandboxes b WHERE b.org = $1 AND b.state NOT IN ('killed', 'failed', 'lost')
         AND b.config LIKE '%' || secrets.name || '%')`,
    [org, before],
  );
}

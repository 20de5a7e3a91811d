/**
 * Brings a database to the schema that this version of Torpor knows.
 *
 * Migrations only add. Each migration runs in one transaction together with the row that records it, so that a kill
 * leaves the migration applied or not begun. Tables and columns that Torpor did not create are never looked at.
 */

import type { Clock, Database, Queryable } from '@torpor/engine';
import { systemClock } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import { type Migration, readMigrations, renderMigration } from './migration-files.ts';
import type { ScriptTransaction } from './open-transaction.ts';

/** What `migrate` needs beyond the engine's port. Other code gets the port alone. */
export interface MigratableDatabase extends Database {
  /** A transaction during which no other server migrates this database. */
  migration<T>(work: (tx: ScriptTransaction) => Promise<T>): Promise<T>;
}

export interface MigrateOptions {
  readonly clock?: Clock;
}

interface AppliedMigration {
  readonly version: number;
  readonly name: string;
  readonly checksum: string;
  readonly [column: string]: string | number;
}

/** Applies the migrations of all directories that the database does not have yet, and returns their names. */
export async function migrate(
  db: MigratableDatabase,
  directories: readonly string[],
  { clock = systemClock }: MigrateOptions = {},
): Promise<string[]> {
  const migrations = await readMigrations(directories);
  const done: string[] = [];
  for (;;) {
    const name = await db.migration((tx) => applyNext(tx, migrations, db.dialect, clock.now()));
    if (name === undefined) return done;
    done.push(name);
  }
}

async function applyNext(
  tx: ScriptTransaction,
  migrations: readonly Migration[],
  dialect: Database['dialect'],
  now: number,
): Promise<string | undefined> {
  await createRecord(tx);
  const applied = await readApplied(tx);
  refuseUnknown(applied, migrations);
  refuseChanged(applied, migrations);
  const next = migrations.find(({ version }) => !applied.some((one) => one.version === version));
  if (next === undefined) return undefined;
  await tx.script(renderMigration(next, dialect));
  await record(tx, next, now);
  return next.name;
}

/** Under the migration lock: two CREATE TABLE IF NOT EXISTS at once can both fail on PostgreSQL. */
async function createRecord(tx: Queryable): Promise<void> {
  await tx.query(`
    CREATE TABLE IF NOT EXISTS schema_migrations (
      version {integer} PRIMARY KEY,
      name TEXT NOT NULL,
      checksum TEXT NOT NULL,
      applied_at {integer} NOT NULL
    ) {strict}`);
}

/** No row lock: the migration lock keeps every other migrator out. */
function readApplied(tx: Queryable): Promise<AppliedMigration[]> {
  return tx.query<AppliedMigration>('SELECT version, name, checksum FROM schema_migrations ORDER BY version');
}

async function record(tx: Queryable, migration: Migration, now: number): Promise<void> {
  await tx.query(
    'INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES ($1, $2, $3, $4)',
    [migration.version, migration.name, migration.checksum, now],
  );
}

function refuseUnknown(applied: readonly AppliedMigration[], migrations: readonly Migration[]): void {
  const unknown = applied.findLast((one) => !migrations.some(({ version }) => version === one.version));
  if (unknown === undefined) return;
  const newest = migrations.at(-1)?.name ?? 'none';
  throw new TorporError(
    'version_unsupported',
    `The database has migration ${unknown.name}; the newest that this version of Torpor knows is ${newest}.`,
    { details: { found: unknown.name, newest } },
  );
}

function refuseChanged(applied: readonly AppliedMigration[], migrations: readonly Migration[]): void {
  for (const { version, name, checksum } of migrations) {
    const before = applied.find((one) => one.version === version);
    if (before === undefined || before.checksum === checksum) continue;
    throw new TorporError('internal', `Migration ${name} is not the one that was applied to this database.`, {
      hint: 'A migration never changes once it was applied. Run the Torpor that belongs to this database.',
      details: { migration: name, applied: before.checksum, found: checksum },
    });
  }
}

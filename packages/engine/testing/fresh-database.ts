/**
 * A new database for a test file, on either adapter.
 *
 * ```ts
 * describe.each(databaseKinds)('the ledger on %s', (kind) => {
 *   let fresh: FreshDatabase;
 *   beforeAll(async () => { fresh = await freshDatabase(kind); });
 *   afterAll(() => fresh.dispose());
 * ```
 */
import { createHash, randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { access, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type MigratableDatabase,
  migrate,
  openPostgres,
  openSqlite,
  type PostgresOptions,
  readMigrations,
  type SqliteOptions,
} from '@torpor/database';
import { ALL_MIGRATIONS } from '@torpor/server/migrations';
import pg from 'pg';
import { inject } from 'vitest';

export type DatabaseKind = MigratableDatabase['dialect'];

/** Both, or SQLite alone on a machine without PostgreSQL; the setup of the test run prints a warning then. */
export const databaseKinds: readonly DatabaseKind[] =
  inject('postgresUrl') === null ? ['sqlite'] : ['sqlite', 'postgres'];

/** Options of an adapter besides the location of its database. */
export type AdapterOptions = Omit<SqliteOptions, 'path'> & Omit<PostgresOptions, 'url'>;

export interface FreshDatabase {
  readonly db: MigratableDatabase;
  /** The path of the file, for SQLite. */
  readonly path?: string;
  /** The URL of the database, for PostgreSQL. */
  readonly url?: string;
  /** Opens a second adapter on the same database, like another server; it is closed with the first. */
  openAnother(options?: AdapterOptions): Promise<MigratableDatabase>;
  dispose(): Promise<void>;
}

export interface FreshOptions extends AdapterOptions {
  /** False for a database without any tables. */
  readonly migrated?: boolean;
}

export async function freshDatabase(kind: DatabaseKind, options: FreshOptions = {}): Promise<FreshDatabase> {
  const database = kind === 'sqlite' ? await createSqlite() : await createPostgres(options.migrated ?? true);
  const opened: MigratableDatabase[] = [];
  const open = async (adapterOptions: AdapterOptions = {}) => {
    const db = await database.open(adapterOptions);
    opened.push(db);
    return db;
  };
  const db = await open(options);
  if (options.migrated ?? true) await migrate(db, ALL_MIGRATIONS);
  return {
    db,
    ...database.address,
    openAnother: open,
    dispose: async () => {
      await Promise.all(opened.map((one) => one.close()));
      await database.remove();
    },
  };
}

interface TestDatabase {
  readonly address: { path: string } | { url: string };
  open(options: AdapterOptions): Promise<MigratableDatabase>;
  remove(): Promise<void>;
}

async function createSqlite(): Promise<TestDatabase> {
  const directory = await mkdtemp(join(await fastDirectory(), 'torpor-database-'));
  const path = join(directory, 'torpor.db');
  return {
    address: { path },
    open: (options) => openSqlite({ ...options, path }),
    remove: () => rm(directory, { recursive: true }),
  };
}

/** In memory if possible: most tests do not need a disk. */
async function fastDirectory(): Promise<string> {
  return await access('/dev/shm', constants.W_OK).then(
    () => '/dev/shm',
    () => tmpdir(),
  );
}

async function createPostgres(migrated: boolean): Promise<TestDatabase> {
  const server = inject('postgresUrl');
  if (server === null) throw new Error('There is no PostgreSQL on this machine.');
  const name = `torpor_test_${randomBytes(8).toString('hex')}`;
  await asAdmin(server, async (admin) => {
    const template = migrated ? await migratedTemplate(admin, server) : 'template1';
    await admin.query(`CREATE DATABASE ${name} TEMPLATE ${template}`);
  });
  const url = urlOf(server, name);
  return {
    address: { url },
    open: (options) => openPostgres({ ...options, url }),
    // By force, because a test may have left a connection open.
    remove: () => asAdmin(server, (admin) => dropDatabase(admin, name)),
  };
}

/** Created once per set of migrations; copying a template database is much faster than migrating. Test files take turns. */
async function migratedTemplate(admin: pg.Client, server: string): Promise<string> {
  const checksums = (await readMigrations(ALL_MIGRATIONS)).map(({ checksum }) => checksum);
  const digest = createHash('sha256').update(checksums.join()).digest('hex');
  const name = `torpor_template_${digest.slice(0, 16)}`;
  await admin.query('SELECT pg_advisory_lock(7677)');
  const known = await admin.query('SELECT 1 FROM pg_database WHERE datname = $1', [name]);
  if (known.rows.length > 0) return name;
  const unfinished = `${name}_unfinished`;
  await dropDatabase(admin, unfinished);
  await admin.query(`CREATE DATABASE ${unfinished}`);
  const db = await openPostgres({ url: urlOf(server, unfinished) });
  await migrate(db, ALL_MIGRATIONS).finally(() => db.close());
  await admin.query(`ALTER DATABASE ${unfinished} RENAME TO ${name}`);
  return name;
}

async function dropDatabase(admin: pg.Client, name: string): Promise<void> {
  await admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
}

/** Advisory locks that `work` took end with the connection. */
async function asAdmin<T>(server: string, work: (admin: pg.Client) => Promise<T>): Promise<T> {
  const admin = new pg.Client({ connectionString: server });
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.end();
  }
}

function urlOf(server: string, database: string): string {
  const url = new URL(server);
  url.pathname = `/${database}`;
  return url.href;
}

export { claimDataDirectory } from './data-directory.ts';
export { renderSql } from './dialect.ts';
export { type MigratableDatabase, migrate } from './migrate.ts';
export { readMigrations } from './migration-files.ts';
export { openPostgres, type PostgresOptions } from './postgres.ts';
export { openSqlite, type SqliteOptions } from './sqlite.ts';

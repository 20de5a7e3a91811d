/** Reads migrations from directories, and renders one for a dialect. */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { TorporError } from '@torpor/protocol';
import { type Dialect, renderSql } from './dialect.ts';

export interface Migration {
  readonly version: number;
  /** The file's name without its ending, as in `0002_queue`. */
  readonly name: string;
  /** The digest of the file before it is rendered, so that it is the same for both dialects. */
  readonly checksum: string;
  readonly sql: string;
}

const FILE_NAME = /^(\d{4})_[a-z0-9_]+\.sql$/;

/**
 * The migrations of all directories, in the order of their numbers.
 *
 * Each package keeps its own directory, but the numbers are shared: they count from 1 over all directories. Two files
 * with one number have no order, and a missing number means that a directory was left out. Both are refused.
 */
export async function readMigrations(directories: readonly string[]): Promise<Migration[]> {
  const read = await Promise.all(directories.map(readDirectory));
  const migrations = read.flat().sort((a, b) => a.version - b.version || (a.name < b.name ? -1 : 1));
  for (const [index, { name, version }] of migrations.entries()) {
    const before = migrations[index - 1];
    if (before?.version === version) {
      throw new TorporError('internal', `The migrations ${before.name} and ${name} have the same number.`);
    }
    if (version !== index + 1) {
      throw new TorporError(
        'internal',
        `Before migration ${name}, the migration with number ${index + 1} is missing.`,
      );
    }
  }
  return migrations;
}

async function readDirectory(directory: string): Promise<Migration[]> {
  const files = (await readdir(directory)).filter((file) => file.endsWith('.sql'));
  return Promise.all(files.map((file) => readMigration(directory, file)));
}

async function readMigration(directory: string, file: string): Promise<Migration> {
  const version = Number(FILE_NAME.exec(file)?.[1]);
  if (Number.isNaN(version)) {
    throw new TorporError('internal', `${file} is no name for a migration; 0001_lifecycle.sql is one.`);
  }
  const sql = await readFile(join(directory, file), 'utf8');
  const checksum = createHash('sha256').update(sql).digest('hex');
  return { version, name: file.slice(0, -'.sql'.length), checksum, sql };
}

/**
 * Replaces the placeholders by the dialect's keywords and leaves out the other dialect's blocks:
 *
 * ```sql
 * -- {sqlite}
 * CREATE TRIGGER …
 * -- {end}
 * ```
 */
export function renderMigration(migration: Migration, dialect: Dialect): string {
  let block: string | undefined;
  const lines: string[] = [];
  for (const line of migration.sql.split('\n')) {
    const mark = /^\s*-- \{(sqlite|postgres|end)\}\s*$/.exec(line)?.[1];
    if (mark === undefined) {
      if (block === undefined || block === dialect) lines.push(line);
      continue;
    }
    if ((mark === 'end') === (block === undefined)) {
      throw new TorporError('internal', `In migration ${migration.name}, -- {${mark}} is out of place.`);
    }
    block = mark === 'end' ? undefined : mark;
  }
  if (block !== undefined) {
    throw new TorporError('internal', `In migration ${migration.name}, -- {${block}} has no end.`);
  }
  return renderSql(dialect, lines.join('\n')).text;
}

/** Migrations as they lie on disk, and how one is written for a dialect. */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { TorporError } from '@torpor/protocol';
import { type Dialect, writeFor } from './dialect.ts';

export interface Migration {
  readonly version: number;
  /** The file's name without its ending, as in `0002_queue`. */
  readonly name: string;
  /** Of the file as written, so that it is the same for both dialects. */
  readonly checksum: string;
  readonly sql: string;
}

export const OUR_MIGRATIONS = fileURLToPath(new URL('./migrations', import.meta.url));

const FILE_NAME = /^(\d{4})_[a-z0-9_]+\.sql$/;

/** All migrations of a directory, in the order of their numbers. */
export async function readMigrations(directory: string): Promise<Migration[]> {
  const files = (await readdir(directory)).filter((file) => file.endsWith('.sql')).sort();
  const migrations = await Promise.all(files.map((file) => readMigration(directory, file)));
  for (const [index, { name, version }] of migrations.entries()) {
    const before = migrations[index - 1];
    if (before?.version === version) {
      throw new TorporError('internal', `The migrations ${before.name} and ${name} have the same number.`);
    }
  }
  return migrations;
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
 * Fills in the dialect's words and leaves out the other dialect's blocks:
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
  return writeFor(dialect, lines.join('\n')).text;
}

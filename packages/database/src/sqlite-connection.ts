/** One connection to the SQLite file: how it is set up, how values go in, and its prepared statements. */
import { closeSync, openSync } from 'node:fs';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import type { Row, SqlValue } from '@torpor/engine';
import { errnoOf } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { renderSql } from './dialect.ts';
import { fileError } from './file-error.ts';
import { isWriteRefused, sqliteError } from './sqlite-error.ts';

/** More than there are different statements in the engine, so that it only bounds a mistake. */
const MAX_STATEMENTS = 500;

/** How long opening and reading may block on another program; nothing else of this process runs meanwhile. */
const BLOCKING_MS = 1_000;

interface Prepared {
  readonly statement: StatementSync;
  readonly parameters: number;
}

export class SqliteConnection {
  readonly #db: DatabaseSync;
  readonly #path: string;
  readonly #readsOnly: boolean;
  readonly #prepared = new Map<string, Prepared>();

  private constructor(db: DatabaseSync, path: string, readsOnly: boolean) {
    this.#db = db;
    this.#path = path;
    this.#readsOnly = readsOnly;
  }

  static writer(path: string): SqliteConnection {
    createPrivately(path);
    const connection = SqliteConnection.#open(path, false);
    connection.#setUp(() => {
      const [mode] = connection.run('PRAGMA journal_mode = WAL');
      if (mode?.['journal_mode'] !== 'wal') {
        throw new TorporError('internal', `${path} cannot be kept with a write-ahead log.`, {
          hint: 'Put the data directory on a local disk: network file systems do not offer what it needs.',
        });
      }
      // In WAL mode this is one sync per commit: what was committed survives a power cut.
      connection.script('PRAGMA synchronous = FULL');
      // Only BEGIN IMMEDIATE ever waits here, and the adapter waits for it without blocking the process.
      connection.script('PRAGMA busy_timeout = 0');
    });
    return connection;
  }

  static reader(path: string): SqliteConnection {
    const connection = SqliteConnection.#open(path, true);
    connection.#setUp(() => connection.script('PRAGMA query_only = ON'));
    return connection;
  }

  get inTransaction(): boolean {
    return this.#db.isTransaction;
  }

  run(sql: string, params: readonly SqlValue[] = []): Row[] {
    return this.#typed(() => {
      const { statement, parameters } = this.#prepare(sql);
      // SQLite would read a missing one as NULL.
      if (params.length !== parameters) {
        throw new TorporError(
          'internal',
          `A statement takes ${parameters} parameters and got ${params.length}.`,
        );
      }
      return statement.all(...params.map(bound)) as Row[];
    });
  }

  /** Runs any number of statements that take no parameters and return nothing. */
  script(sql: string): void {
    this.#typed(() => this.#db.exec(sql));
  }

  close(): void {
    this.#prepared.clear();
    this.#typed(() => this.#db.close());
  }

  static #open(path: string, readsOnly: boolean): SqliteConnection {
    try {
      const options = { timeout: BLOCKING_MS, enableForeignKeyConstraints: true, defensive: true };
      return new SqliteConnection(new DatabaseSync(path, options), path, readsOnly);
    } catch (thrown) {
      throw sqliteError(thrown, path);
    }
  }

  #setUp(steps: () => void): void {
    try {
      // A file from elsewhere may bring views and triggers; they may not call anything with effects.
      this.script('PRAGMA trusted_schema = OFF');
      steps();
    } catch (thrown) {
      this.#db.close();
      throw thrown;
    }
  }

  #prepare(sql: string): Prepared {
    const known = this.#prepared.get(sql);
    if (known !== undefined) {
      // Put last again: the first in the map is then the one unused for longest.
      this.#prepared.delete(sql);
      this.#prepared.set(sql, known);
      return known;
    }
    const { text, parameters } = renderSql('sqlite', sql);
    const statement = this.#db.prepare(text);
    // SQLite compiles the first statement and would drop the others silently.
    if (text.slice(statement.sourceSQL.length).trim() !== '') {
      throw new TorporError('internal', 'A query is one statement.');
    }
    if (this.#prepared.size >= MAX_STATEMENTS) this.#prepared.delete(this.#oldest());
    const prepared = { statement, parameters };
    this.#prepared.set(sql, prepared);
    return prepared;
  }

  #oldest(): string {
    const [oldest] = this.#prepared.keys();
    return oldest ?? '';
  }

  #typed<T>(work: () => T): T {
    try {
      return work();
    } catch (thrown) {
      if (this.#readsOnly && isWriteRefused(thrown)) {
        throw new TorporError('internal', 'A statement outside a transaction may only read.', {
          cause: thrown,
        });
      }
      throw sqliteError(thrown, this.#path);
    }
  }
}

/**
 * Makes the file for its user alone, which SQLite would not; what lies beside it gets the same mode. A file
 * that is there is not opened: closing it again would free the locks that this process has on it.
 */
function createPrivately(path: string): void {
  try {
    closeSync(openSync(path, 'wx', 0o600));
  } catch (thrown) {
    if (errnoOf(thrown) !== 'EEXIST') throw fileError(thrown, path);
  }
}

/** A JavaScript number would be bound as a float, and `$1 / 2` or `$1 || ''` would differ from PostgreSQL. */
function bound(value: SqlValue): string | number | bigint | null {
  if (typeof value !== 'number') return value;
  if (!Number.isFinite(value)) throw new TorporError('internal', `${value} cannot be stored.`);
  return Number.isInteger(value) ? BigInt(value) : value;
}

/**
 * The database in one file, inside the process.
 *
 * - Transactions run one at a time on the writing connection, in the order of the calls. They are async functions that
 *   await between statements, so only the mutex keeps one caller's statements out of another's transaction.
 * - `query` outside a transaction runs on a second, read-only connection. It reads what was last committed and never waits
 *   for a transaction.
 * - A transaction that found the disk full runs again once space was freed for it.
 * - Notifications stay inside the process: one process uses a data directory (data-directory.ts).
 */

import type { Row, SqlValue, Transaction } from '@torpor/engine';
import { type Clock, systemClock } from '@torpor/engine';
import { Mutex } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { ChannelListeners } from './channel-listeners.ts';
import type { MigratableDatabase } from './migrate.ts';
import { OpenTransaction, type ScriptTransaction, TransactionScope } from './open-transaction.ts';
import { SqliteConnection } from './sqlite-connection.ts';
import { isDiskFull } from './sqlite-error.ts';

export interface SqliteOptions {
  readonly path: string;
  /** How long a transaction waits for another program that has the file locked. */
  readonly busyTimeoutMs?: number;
  readonly clock?: Clock;
  /** Called when the disk is full. True when it freed space and the transaction can run again. */
  readonly makeRoom?: () => Promise<boolean>;
}

const BUSY_PAUSE_MS = 10;

export async function openSqlite(options: SqliteOptions): Promise<MigratableDatabase> {
  return withRoom(options.makeRoom, async () => openBoth(options));
}

/** Repeats work that found the disk full, as long as space can be freed. */
async function withRoom<T>(makeRoom: SqliteOptions['makeRoom'], work: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await work();
    } catch (thrown) {
      if (!isDiskFull(thrown) || !(await makeRoom?.())) throw thrown;
    }
  }
}

function openBoth(options: SqliteOptions): MigratableDatabase {
  const writer = SqliteConnection.writer(options.path);
  try {
    return new SqliteDatabase(writer, SqliteConnection.reader(options.path), options);
  } catch (thrown) {
    writer.close();
    throw thrown;
  }
}

class SqliteDatabase implements MigratableDatabase {
  readonly dialect = 'sqlite';
  readonly #path: string;
  readonly #writer: SqliteConnection;
  readonly #reader: SqliteConnection;
  readonly #busyTimeoutMs: number;
  readonly #clock: Clock;
  readonly #makeRoom: SqliteOptions['makeRoom'];
  readonly #scope = new TransactionScope();
  readonly #listeners = new ChannelListeners();
  readonly #writing = new Mutex();
  #closing: Promise<void> | undefined;

  constructor(writer: SqliteConnection, reader: SqliteConnection, options: SqliteOptions) {
    this.#path = options.path;
    this.#writer = writer;
    this.#reader = reader;
    this.#busyTimeoutMs = options.busyTimeoutMs ?? 5_000;
    this.#clock = options.clock ?? systemClock;
    this.#makeRoom = options.makeRoom;
  }

  async query<R extends Row = Row>(sql: string, params: readonly SqlValue[] = []): Promise<R[]> {
    this.#refuseClosed();
    return this.#reader.run(sql, params) as R[];
  }

  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    return this.#transactWhenFree(work);
  }

  /** BEGIN IMMEDIATE excludes every other writer, so `migrate` needs no more than a transaction. */
  migration<T>(work: (tx: ScriptTransaction) => Promise<T>): Promise<T> {
    return this.#transactWhenFree(work);
  }

  async listen(channel: string, onNotice: () => void): Promise<() => Promise<void>> {
    this.#refuseClosed();
    const remove = this.#listeners.add(channel, onNotice);
    return async () => remove();
  }

  close(): Promise<void> {
    this.#closing ??= this.#writing.run(() => {
      this.#reader.close();
      this.#writer.close();
    });
    return this.#closing;
  }

  async #transactWhenFree<T>(work: (tx: ScriptTransaction) => Promise<T>): Promise<T> {
    this.#refuseClosed();
    this.#scope.refuseNesting();
    return await this.#writing.run(() => withRoom(this.#makeRoom, () => this.#transact(work)));
  }

  async #transact<T>(work: (tx: ScriptTransaction) => Promise<T>): Promise<T> {
    await this.#begin();
    const tx = new OpenTransaction(this.#writer);
    try {
      const result = await this.#scope.run(tx, work);
      this.#writer.run('COMMIT');
      this.#listeners.notify(tx.channels);
      return result;
    } finally {
      // A deferred constraint refuses the COMMIT and leaves the transaction open; a full disk ends the transaction.
      if (this.#writer.inTransaction) this.#writer.run('ROLLBACK');
    }
  }

  /**
   * IMMEDIATE takes the write lock at once: a transaction that reads first and writes later could find that another one
   * has written in between, and would have to start again.
   */
  async #begin(): Promise<void> {
    const deadline = this.#clock.monotonic() + this.#busyTimeoutMs;
    for (;;) {
      try {
        this.#writer.run('BEGIN IMMEDIATE');
        return;
      } catch (thrown) {
        const busy = thrown instanceof TorporError && thrown.code === 'in_use';
        if (!busy || this.#clock.monotonic() >= deadline) throw thrown;
      }
      await this.#clock.sleep(BUSY_PAUSE_MS);
    }
  }

  #refuseClosed(): void {
    if (this.#closing === undefined) return;
    throw new TorporError('unreachable', `The database ${this.#path} is closed.`);
  }
}

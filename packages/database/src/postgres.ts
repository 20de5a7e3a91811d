/**
 * The database that several servers share.
 *
 * - READ COMMITTED: a transaction locks the rows that must not change meanwhile (`{FOR UPDATE}`).
 * - A transaction that fails because of another one (serialisation failure, deadlock) runs again, a few times.
 * - `query` outside a transaction runs on read-only connections, as on SQLite. They are a pool of their own, so that reads
 *   during a transaction cannot starve for connections that transactions hold.
 * - Every wait has a timeout: for a connection, for a statement, for its answer, for an abandoned transaction.
 * - The server needs direct connections: a pooler that shares connections between transactions breaks LISTEN and the
 *   settings made here.
 */

import type { Row, SqlValue, Transaction } from '@torpor/engine';
import { type Clock, systemClock } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import pg from 'pg';
import { ChannelListeners } from './channel-listeners.ts';
import type { MigratableDatabase } from './migrate.ts';
import { OpenTransaction, type ScriptTransaction, TransactionScope } from './open-transaction.ts';
import { PostgresConnection } from './postgres-connection.ts';
import { isReadOnlyTransaction, isRerunnable } from './postgres-error.ts';
import { PostgresListener } from './postgres-listener.ts';
import { postgresValues } from './postgres-values.ts';

export interface PostgresOptions {
  readonly url: string;
  /** Concurrent transactions. With the readers and the listener there are ten connections by default. */
  readonly writers?: number;
  readonly readers?: number;
  /** How long to wait for a free connection, and for the server to accept a new one. */
  readonly connectTimeoutMs?: number;
  readonly statementTimeoutMs?: number;
  /** How much longer than the server's own limit an answer may take before the connection counts as lost. */
  readonly answerGraceMs?: number;
  /** After this time without a statement the server aborts a transaction and frees its locks. */
  readonly idleTransactionTimeoutMs?: number;
  /** What the connections are called on the server. */
  readonly applicationName?: string;
  /** How long one migration may take; it may rewrite large tables. */
  readonly migrationTimeoutMs?: number;
  readonly clock?: Clock;
  readonly random?: () => number;
}

const ATTEMPTS = 5;
const RERUN_PAUSE_MS = 20;
/** The advisory lock of the server that migrates the database. Any number, the same on all servers. */
const MIGRATION_LOCK = 7676;

export async function openPostgres(options: PostgresOptions): Promise<MigratableDatabase> {
  const database = new PostgresDatabase(options);
  try {
    await database.query('SELECT 1');
    return database;
  } catch (thrown) {
    await database.close();
    throw thrown;
  }
}

class PostgresDatabase implements MigratableDatabase {
  readonly dialect = 'postgres';
  readonly #name: string;
  readonly #writers: pg.Pool;
  readonly #readers: pg.Pool;
  readonly #listener: PostgresListener;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #migrationTimeoutMs: number;
  readonly #answerGraceMs: number;
  readonly #scope = new TransactionScope();
  readonly #underWay = new Set<Promise<unknown>>();
  #closing: Promise<void> | undefined;

  constructor(options: PostgresOptions) {
    this.#name = nameOf(options.url);
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? Math.random;
    this.#migrationTimeoutMs = options.migrationTimeoutMs ?? 600_000;
    this.#answerGraceMs = options.answerGraceMs ?? 5_000;
    const connection = connectionOf(options, this.#answerGraceMs);
    this.#writers = quietPool({ ...connection, max: options.writers ?? 6 });
    this.#readers = quietPool({
      ...connection,
      max: options.readers ?? 3,
      onConnect: (client) => client.query('SET default_transaction_read_only = on'),
    });
    this.#listener = new PostgresListener({
      database: this.#name,
      connection,
      listeners: new ChannelListeners(),
      clock: this.#clock,
      random: this.#random,
    });
  }

  query<R extends Row = Row>(sql: string, params: readonly SqlValue[] = []): Promise<R[]> {
    return this.#track(async () => {
      try {
        const { connection, answer } = await this.#withFreshConnection(this.#readers, (one) =>
          one.run(sql, params),
        );
        connection.release();
        return answer as R[];
      } catch (thrown) {
        if (!(thrown instanceof TorporError) || !isReadOnlyTransaction(thrown.cause)) throw thrown;
        throw new TorporError('internal', 'A statement outside a transaction may only read.', {
          cause: thrown,
        });
      }
    });
  }

  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    return this.#track(() => this.#rerun(work));
  }

  /**
   * The lock ends with the transaction, so a server that dies while migrating leaves none behind. Of two servers that
   * start at once the second waits, and finds the migrations applied.
   */
  migration<T>(work: (tx: ScriptTransaction) => Promise<T>): Promise<T> {
    return this.#track(() =>
      this.#rerun(async (tx) => {
        await tx.query('SELECT pg_advisory_xact_lock($1)', [MIGRATION_LOCK]);
        await tx.script(`SET LOCAL statement_timeout = ${this.#migrationTimeoutMs}`);
        return await work(tx);
      }),
    );
  }

  listen(channel: string, onNotice: () => void): Promise<() => Promise<void>> {
    return this.#track(() => this.#listener.listen(channel, onNotice));
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #rerun<T>(work: (tx: OpenTransaction) => Promise<T>): Promise<T> {
    this.#scope.refuseNesting();
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#transact(work);
      } catch (thrown) {
        if (attempt >= ATTEMPTS || !isRerunnable(thrown)) throw thrown;
      }
      await this.#clock.sleep(RERUN_PAUSE_MS * attempt * this.#random());
    }
  }

  async #transact<T>(work: (tx: OpenTransaction) => Promise<T>): Promise<T> {
    const { connection } = await this.#withFreshConnection(this.#writers, (one) => one.begin());
    const tx = new OpenTransaction({
      run: (sql, params) => connection.run(sql, params),
      script: (sql) => connection.script(sql, this.#migrationTimeoutMs + this.#answerGraceMs),
    });
    try {
      const result = await this.#scope.run(tx, work);
      // Inside the transaction: PostgreSQL notifies the listeners when, and only if, it commits.
      for (const channel of tx.channels) await connection.run(`SELECT pg_notify($1, '')`, [channel]);
      await connection.commit();
      return result;
    } catch (thrown) {
      await connection.rollback();
      // An error that `work` made of a deadlock must not hide that the transaction can run again.
      throw isRerunnable(tx.failure) ? tx.failure : thrown;
    } finally {
      connection.release();
    }
  }

  /**
   * Takes a connection and sends a first statement that changes nothing. Only this shows that a connection died while it
   * was idle; then another connection is tried, once.
   */
  async #withFreshConnection<T>(
    pool: pg.Pool,
    ask: (connection: PostgresConnection) => Promise<T>,
  ): Promise<{ connection: PostgresConnection; answer: T }> {
    for (let again = true; ; again = false) {
      const connection = await PostgresConnection.take(pool, this.#name);
      try {
        return { connection, answer: await ask(connection) };
      } catch (thrown) {
        connection.release();
        if (!connection.lost || !again) throw thrown;
      }
    }
  }

  /** Waits for the calls under way: a pool that is ended no longer gives connections to waiting calls. */
  async #close(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay);
    await this.#listener.close();
    await Promise.all([this.#writers.end(), this.#readers.end()]);
  }

  async #track<T>(work: () => Promise<T>): Promise<T> {
    if (this.#closing !== undefined) throw new TorporError('unreachable', `${this.#name} is closed.`);
    const mine = work();
    this.#underWay.add(mine);
    try {
      return await mine;
    } finally {
      this.#underWay.delete(mine);
    }
  }
}

function connectionOf(options: PostgresOptions, answerGraceMs: number): pg.ClientConfig {
  const statementTimeoutMs = options.statementTimeoutMs ?? 30_000;
  return {
    connectionString: options.url,
    application_name: options.applicationName ?? 'torpor',
    connectionTimeoutMillis: options.connectTimeoutMs ?? 10_000,
    statement_timeout: statementTimeoutMs,
    query_timeout: statementTimeoutMs + answerGraceMs,
    idle_in_transaction_session_timeout: options.idleTransactionTimeoutMs ?? 60_000,
    keepAlive: true,
    types: postgresValues,
  };
}

/**
 * An 'error' event without a listener would end the process. An idle connection that dies has left the pool already, and
 * a connection that dies in use fails the next statement on it.
 */
function quietPool(config: pg.PoolConfig): pg.Pool {
  const pool = new pg.Pool(config);
  pool.on('error', () => undefined);
  pool.on('connect', (client) => {
    client.on('error', () => undefined);
  });
  return pool;
}

/** The name of the database in messages, without the user's password. */
function nameOf(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed === undefined || !['postgres:', 'postgresql:'].includes(parsed.protocol)) {
    throw new TorporError('invalid_request', 'The URL of the database must start with "postgres://".');
  }
  return `PostgreSQL at ${parsed.searchParams.get('host') ?? parsed.host}${parsed.pathname}`;
}

/** One connection of the pool while it is in use. */

import type { Row, SqlValue } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import type { Pool, PoolClient, QueryResult } from 'pg';
import { renderSql } from './dialect.ts';
import { isConnectionLost, postgresError, unknownOutcome, unreachable } from './postgres-error.ts';

export class PostgresConnection {
  readonly #client: PoolClient;
  readonly #database: string;
  #lost = false;

  private constructor(client: PoolClient, database: string) {
    this.#client = client;
    this.#database = database;
  }

  /** Every failure to get a connection, also a timeout of the pool, is `unreachable`. */
  static async take(pool: Pool, database: string): Promise<PostgresConnection> {
    try {
      return new PostgresConnection(await pool.connect(), database);
    } catch (thrown) {
      throw unreachable(database, thrown);
    }
  }

  get lost(): boolean {
    return this.#lost;
  }

  async run(sql: string, params: readonly SqlValue[] = []): Promise<Row[]> {
    const { text } = renderSql('postgres', sql);
    try {
      return (await this.#send({ text, values: [...params] })).rows;
    } catch (thrown) {
      throw postgresError(thrown, this.#database);
    }
  }

  /** Runs any number of statements without parameters, within `timeoutMs`. */
  async script(sql: string, timeoutMs: number): Promise<void> {
    try {
      await this.#send({ text: sql, query_timeout: timeoutMs });
    } catch (thrown) {
      throw postgresError(thrown, this.#database);
    }
  }

  async begin(): Promise<void> {
    await this.run('BEGIN ISOLATION LEVEL READ COMMITTED');
  }

  async commit(): Promise<void> {
    try {
      const { command } = await this.#send({ text: 'COMMIT' });
      // PostgreSQL answers the COMMIT of a failed transaction with ROLLBACK, and without an error.
      if (command !== 'COMMIT') throw new TorporError('internal', 'A transaction ended before its COMMIT.');
    } catch (thrown) {
      throw this.#lost ? unknownOutcome(this.#database, thrown) : postgresError(thrown, this.#database);
    }
  }

  async rollback(): Promise<void> {
    if (this.#lost) return;
    await this.run('ROLLBACK').catch(() => {
      this.#lost = true;
    });
  }

  /** Returns the connection to the pool; a lost connection is discarded. */
  release(): void {
    this.#client.release(this.#lost);
  }

  async #send(query: {
    text: string;
    values?: SqlValue[];
    query_timeout?: number;
  }): Promise<QueryResult<Row>> {
    try {
      return await this.#client.query<Row>(query);
    } catch (thrown) {
      if (isConnectionLost(thrown)) this.#lost = true;
      throw thrown;
    }
  }
}

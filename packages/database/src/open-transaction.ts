/**
 * The behaviour of a transaction that is the same on both databases, so that code which works on one works on the other:
 * - Statements run one after the other, in the order of the calls.
 * - A statement that fails makes the transaction fail. PostgreSQL refuses the statements after it and SQLite does not, so
 *   they are refused here, and the transaction fails even when `work` caught the error. A statement that may fail
 *   harmlessly is written so that it does not (`ON CONFLICT DO NOTHING`).
 * - After its end a transaction takes no more statements: on SQLite they would land in another caller's transaction.
 * - Transactions are not nested: on SQLite the inner one would wait for the outer one for ever.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Row, SqlValue, Transaction } from '@torpor/engine';
import { Mutex } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

/** A transaction of `migrate`, which can also run a whole file of statements. */
export interface ScriptTransaction extends Transaction {
  script(sql: string): Promise<void>;
}

/** How an adapter runs statements on the connection that holds the transaction. Errors are converted already. */
export interface TransactionConnection {
  run(sql: string, params: readonly SqlValue[]): Row[] | Promise<Row[]>;
  script(sql: string): void | Promise<void>;
}

export class OpenTransaction implements ScriptTransaction {
  readonly channels = new Set<string>();
  readonly #connection: TransactionConnection;
  #open = true;
  #failure: { readonly error: unknown } | undefined;
  readonly #statements = new Mutex();

  constructor(connection: TransactionConnection) {
    this.#connection = connection;
  }

  get open(): boolean {
    return this.#open;
  }

  /** The error of the first statement that failed. */
  get failure(): unknown {
    return this.#failure?.error;
  }

  query<R extends Row = Row>(sql: string, params: readonly SqlValue[] = []): Promise<R[]> {
    return this.#enqueue(() => this.#connection.run(sql, params)) as Promise<R[]>;
  }

  script(sql: string): Promise<void> {
    return this.#enqueue(() => this.#connection.script(sql));
  }

  notify(channel: string): void {
    this.channels.add(channel);
  }

  /** Takes no more statements and waits for those under way; fails when one of them failed. */
  async end(): Promise<void> {
    this.#open = false;
    await this.#statements.run(() => undefined);
    if (this.#failure !== undefined) throw this.#failure.error;
  }

  #enqueue<T>(statement: () => T | Promise<T>): Promise<T> {
    if (!this.#open) {
      return Promise.reject(
        new TorporError('internal', 'A statement came after the end of its transaction.'),
      );
    }
    return this.#statements.run(async () => {
      if (this.#failure !== undefined) throw this.#failure.error;
      try {
        return await statement();
      } catch (error) {
        this.#failure = { error };
        throw error;
      }
    });
  }
}

/** Tracks in which transaction of a database the calling code runs. */
export class TransactionScope {
  readonly #current = new AsyncLocalStorage<OpenTransaction>();

  refuseNesting(): void {
    // Code that a transaction started and did not await still has the transaction here, but it is no longer open.
    if (this.#current.getStore()?.open !== true) return;
    throw new TorporError(
      'internal',
      'A transaction was begun inside another one; pass on its "tx" instead.',
    );
  }

  /** Runs `work` and waits for all its statements. The adapter commits or rolls back. */
  async run<T>(tx: OpenTransaction, work: (tx: OpenTransaction) => Promise<T>): Promise<T> {
    let result: T;
    try {
      result = await this.#current.run(tx, async () => await work(tx));
    } catch (thrown) {
      // The caller of `work` expects the error that `work` threw, so it wins over the statement's own.
      await tx.end().catch(() => undefined);
      throw thrown;
    }
    await tx.end();
    return result;
  }
}

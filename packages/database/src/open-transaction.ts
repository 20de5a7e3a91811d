/**
 * What is the same for a transaction on either database, so that code which works on one works on the
 * other:
 * - its statements run one after the other, in the order in which they were asked for;
 * - a statement that fails dooms it. PostgreSQL would refuse the rest and SQLite would carry on, so here
 *   the rest is refused and the transaction fails even when `work` caught the error. What may fail
 *   harmlessly is written so that it does not (`ON CONFLICT DO NOTHING`);
 * - after its end it takes no more statements: on SQLite they would land in somebody else's transaction;
 * - there is none inside another, which on SQLite would wait for itself.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Row, SqlValue, Transaction } from '@torpor/engine';
import { Mutex } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

/** A transaction of the migrator, which can also run a whole file of statements. */
export interface ScriptTransaction extends Transaction {
  script(sql: string): Promise<void>;
}

/** How an adapter runs things on the connection that holds the transaction; errors are typed already. */
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

  /** What the first statement that failed threw. */
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

  /** Takes no more statements and waits for those it took; fails when one of them failed. */
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

/** Knows, for one database, in which transaction the calling code runs. */
export class TransactionScope {
  readonly #current = new AsyncLocalStorage<OpenTransaction>();

  refuseNesting(): void {
    // What a transaction started and left behind still sees it here, but then it is no longer open.
    if (this.#current.getStore()?.open !== true) return;
    throw new TorporError(
      'internal',
      'A transaction was begun inside another one; pass on its "tx" instead.',
    );
  }

  /** Runs `work` and waits for all its statements. Commit and rollback are the adapter's. */
  async run<T>(tx: OpenTransaction, work: (tx: OpenTransaction) => Promise<T>): Promise<T> {
    let result: T;
    try {
      result = await this.#current.run(tx, async () => await work(tx));
    } catch (thrown) {
      // What `work` made of the failure is what its caller waits for, so this wins over the statement's own.
      await tx.end().catch(() => undefined);
      throw thrown;
    }
    await tx.end();
    return result;
  }
}

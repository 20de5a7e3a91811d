/**
 * The port to the database: plain SQL in the subset that SQLite and PostgreSQL share.
 *
 * Parameters are `$1`, `$2`…; times are integer milliseconds, JSON is text, booleans are 0 and 1. Keywords that differ
 * are written in braces and replaced by the adapter: `{FOR UPDATE}`, `{SKIP LOCKED}` and `{now}` (the time of
 * the database's clock, in milliseconds) in statements, `{integer}` and
 * the like in migrations.
 */
export type SqlValue = string | number | null;
export type Row = Readonly<Record<string, SqlValue>>;

export interface Queryable {
  query<R extends Row = Row>(sql: string, params?: readonly SqlValue[]): Promise<R[]>;
}

export interface Transaction extends Queryable {
  /** Notifies the listeners of the channel once, after the commit. A rollback notifies none. */
  notify(channel: string): void;
}

export interface Database extends Queryable {
  readonly dialect: 'sqlite' | 'postgres';
  /**
   * Runs `work` in one transaction that is durable when the promise resolves. A throw rolls back.
   * `work` may run again after a deadlock, so it must have no effects outside the transaction.
   */
  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  /**
   * Calls `onNotice` after commits that notified the channel, on any server. Notifications may be merged, may come
   * without a cause, and one is sent after a lost connection: they only tell the listener to read again.
   */
  listen(channel: string, onNotice: () => void): Promise<() => Promise<void>>;
  close(): Promise<void>;
}

/** A constraint refused a write. */
export class ConstraintViolation extends Error {
  override readonly name = 'ConstraintViolation';
  readonly kind: 'unique' | 'foreign_key' | 'check';

  constructor(kind: ConstraintViolation['kind'], message: string, cause: unknown) {
    super(message, { cause });
    this.kind = kind;
  }
}

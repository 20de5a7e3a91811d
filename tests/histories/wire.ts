/**
 * Everything an engine touches, with a cut that can be made before or after any single call: from then on
 * nothing it does reaches the world and nothing answers it, which is what kill -9 looks like from outside.
 */
import type { CheckpointStore, Clock, Database, Runtime, SqlValue, Transaction } from '@torpor/engine';

class Cut extends Error {}

export class Wire {
  #left = Number.POSITIVE_INFINITY;
  #isCut = false;
  /** Calls to the database that have not answered yet; while there are some, time must not be moved on. */
  inFlight = 0;

  cut(): void {
    this.#isCut = true;
  }

  /** Cuts at the n-th half call from now: odd ones are before it reaches the world, even ones after. */
  cutAfter(halfCalls: number): void {
    this.#left = halfCalls;
  }

  get dead(): boolean {
    return this.#isCut;
  }

  async through<T>(work: () => Promise<T>): Promise<T> {
    this.#count();
    if (this.#isCut) return never();
    let answer: { readonly value: T } | { readonly thrown: unknown };
    try {
      answer = { value: await work() };
    } catch (thrown) {
      answer = { thrown };
    }
    this.#count();
    if (this.#isCut) return never();
    if ('thrown' in answer) throw answer.thrown;
    return answer.value;
  }

  database(db: Database): Database {
    const counted = async <T>(work: () => Promise<T>): Promise<T> => {
      if (this.#isCut) return never();
      this.inFlight++;
      try {
        return await work();
      } finally {
        this.inFlight--;
      }
    };
    return {
      dialect: db.dialect,
      query: (sql, params) => this.through(() => counted(() => db.query(sql, params))),
      transaction: (work) =>
        this.through(() =>
          counted(() => db.transaction((tx) => work(this.#transaction(tx)))).catch((thrown: unknown) => {
            // The process died inside the transaction: the database rolls it back, and nobody hears of it.
            if (thrown instanceof Cut) return never<never>();
            throw thrown;
          }),
        ),
      listen: (channel, onNotice) => counted(() => db.listen(channel, () => !this.#isCut && onNotice())),
      close: () => db.close(),
    };
  }

  #transaction(tx: Transaction): Transaction {
    return {
      query: (sql: string, params?: readonly SqlValue[]) => {
        this.#count();
        if (this.#isCut) throw new Cut();
        return tx.query(sql, params);
      },
      notify: (channel) => tx.notify(channel),
    };
  }

  clock(clock: Clock): Clock {
    return {
      now: () => clock.now(),
      monotonic: () => clock.monotonic(),
      sleep: (ms, signal) => clock.sleep(ms, signal).then(() => (this.#isCut ? never() : undefined)),
    };
  }

  /** Wraps every asynchronous method of a port. */
  port<T extends Runtime | CheckpointStore>(port: T): T {
    return new Proxy(port, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name, target);
        if (typeof value !== 'function') return value;
        const method = value.bind(target) as (...args: unknown[]) => unknown;
        if (name === 'list' || name === 'capabilities' || name === 'path' || name === 'location')
          return method;
        return (...args: unknown[]) => this.through(async () => method(...args));
      },
    });
  }

  #count(): void {
    if (this.#isCut) return;
    this.#left--;
    if (this.#left < 0) this.#isCut = true;
  }
}

function never<T>(): Promise<T> {
  return new Promise(() => {});
}

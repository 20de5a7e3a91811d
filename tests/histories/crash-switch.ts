/**
 * Wraps everything an engine calls, so that a crash can be simulated before or after any single call. After the crash no
 * call of the engine has an effect and no call returns, which is how kill -9 looks from outside.
 */
import type { CheckpointStore, Clock, Database, Runtime, SqlValue, Transaction } from '@torpor/engine';

class Crashed extends Error {}

export class CrashSwitch {
  #left = Number.POSITIVE_INFINITY;
  #isCrashed = false;
  /** Database calls in progress. While there are any, the clock must not be advanced. */
  inFlight = 0;
  #callEnd = Promise.withResolvers<void>();

  crash(): void {
    this.#isCrashed = true;
  }

  /** Crashes after n half calls. The first half of a call is before its effect, the second half after it. */
  crashAfter(halfCalls: number): void {
    this.#left = halfCalls;
  }

  get crashed(): boolean {
    return this.#isCrashed;
  }

  /** Resolves when the next database call ends. */
  get callEnd(): Promise<void> {
    return this.#callEnd.promise;
  }

  async call<T>(work: () => Promise<T>): Promise<T> {
    this.#count();
    if (this.#isCrashed) return never();
    let answer: { readonly value: T } | { readonly thrown: unknown };
    try {
      answer = { value: await work() };
    } catch (thrown) {
      answer = { thrown };
    }
    this.#count();
    if (this.#isCrashed) return never();
    if ('thrown' in answer) throw answer.thrown;
    return answer.value;
  }

  database(db: Database): Database {
    const counted = async <T>(work: () => Promise<T>): Promise<T> => {
      if (this.#isCrashed) return never();
      this.inFlight++;
      try {
        return await work();
      } finally {
        this.inFlight--;
        this.#callEnd.resolve();
        this.#callEnd = Promise.withResolvers();
      }
    };
    return {
      dialect: db.dialect,
      query: (sql, params) => this.call(() => counted(() => db.query(sql, params))),
      transaction: (work) =>
        this.call(() =>
          counted(() => db.transaction((tx) => work(this.#transaction(tx)))).catch((thrown: unknown) => {
            // The process crashed inside the transaction: the database rolls back and the engine gets no answer.
            if (thrown instanceof Crashed) return never<never>();
            throw thrown;
          }),
        ),
      listen: (channel, onNotice) => counted(() => db.listen(channel, () => !this.#isCrashed && onNotice())),
      close: () => db.close(),
    };
  }

  #transaction(tx: Transaction): Transaction {
    return {
      query: (sql: string, params?: readonly SqlValue[]) => {
        this.#count();
        if (this.#isCrashed) throw new Crashed();
        return tx.query(sql, params);
      },
      notify: (channel) => tx.notify(channel),
    };
  }

  clock(clock: Clock): Clock {
    return {
      now: () => clock.now(),
      monotonic: () => clock.monotonic(),
      sleep: (ms, signal) => clock.sleep(ms, signal).then(() => (this.#isCrashed ? never() : undefined)),
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
        return (...args: unknown[]) => this.call(async () => method(...args));
      },
    });
  }

  #count(): void {
    if (this.#isCrashed) return;
    this.#left--;
    if (this.#left < 0) this.#isCrashed = true;
  }
}

function never<T>(): Promise<T> {
  return new Promise(() => {});
}

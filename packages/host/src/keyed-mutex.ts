import { rejectOnAbort } from './reject-on-abort.ts';

/** Runs work one at a time for each key, in the order of the calls. */
export class KeyedMutex<Key> {
  readonly #last = new Map<Key, Promise<unknown>>();

  /**
   * Rejects when the signal aborts, and work that has not begun by then never begins. Work that has begun is not
   * interrupted: a file system call that hangs cannot be cancelled, so the next call for the key waits until that work
   * has really ended.
   */
  async run<T>(key: Key, work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const before = this.#last.get(key) ?? Promise.resolve();
    const mine = before.then(async () => {
      signal?.throwIfAborted();
      return work();
    });
    const settled = mine.catch(() => {});
    this.#last.set(key, settled);
    void settled.then(() => {
      if (this.#last.get(key) === settled) this.#last.delete(key);
    });
    return signal === undefined ? mine : rejectOnAbort(mine, signal);
  }
}

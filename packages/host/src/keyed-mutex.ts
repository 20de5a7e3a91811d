/** Runs work one at a time for each key, in the order of the calls. */
export class KeyedMutex<Key> {
  readonly #last = new Map<Key, Promise<unknown>>();

  /**
   * Rejects when the signal fires before the work begins. Work that has begun is not interrupted: a file system call that
   * hangs cannot be cancelled, so the next call for the key waits until that work has really ended.
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
    return signal === undefined ? mine : Promise.race([mine, aborted(signal, settled)]);
  }
}

/** Rejects when the signal fires, unless the work ends first. */
function aborted(signal: AbortSignal, ended: Promise<unknown>): Promise<never> {
  return new Promise((_, reject) => {
    const onAbort = () => reject(signal.reason);
    if (signal.aborted) return onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    void ended.then(() => signal.removeEventListener('abort', onAbort));
  });
}

/** Runs work one at a time, in the order of the calls. `KeyedMutex` does the same for each key. */
export class Mutex {
  #last: Promise<unknown> = Promise.resolve();

  run<T>(work: () => T | Promise<T>): Promise<T> {
    const mine = this.#last.then(work);
    this.#last = mine.catch(() => undefined);
    return mine;
  }
}

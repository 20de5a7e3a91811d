/**
 * One at a time per key, in the order of asking.
 *
 * A file system call that hangs cannot be cancelled, so a caller may have given up on work that is still
 * going on. What it asks for next on the same key waits until that work has really ended.
 */
export class Turns<K> {
  readonly #last = new Map<K, Promise<unknown>>();

  take<T>(key: K, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(key) ?? Promise.resolve();
    const mine = before.then(work, work);
    this.#last.set(key, mine);
    const leave = () => {
      if (this.#last.get(key) === mine) this.#last.delete(key);
    };
    mine.then(leave, leave);
    return mine;
  }
}

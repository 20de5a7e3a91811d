/**
 * A mutex per key that joins identical calls. A call with the same action as the last queued one gets that call's
 * result; a call with another action waits until it is done.
 */

interface QueuedCall {
  readonly what: string;
  readonly done: Promise<unknown>;
}

export class JoiningMutex {
  readonly #last = new Map<string, QueuedCall>();

  run<T>(key: string, what: string, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(key);
    if (before?.what === what) return before.done as Promise<T>;
    const done = (before?.done ?? Promise.resolve()).then(work, work);
    const turn: QueuedCall = { what, done };
    this.#last.set(key, turn);
    const leave = () => {
      if (this.#last.get(key) === turn) this.#last.delete(key);
    };
    done.then(leave, leave);
    return done;
  }
}

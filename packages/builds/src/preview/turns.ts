/** One thing at a time per build: the same wish joins the one that is under way or next, another waits for its turn. */

interface Turn {
  readonly what: string;
  readonly done: Promise<unknown>;
}

export class Turns {
  readonly #last = new Map<string, Turn>();

  join<T>(key: string, what: string, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(key);
    if (before?.what === what) return before.done as Promise<T>;
    const done = (before?.done ?? Promise.resolve()).then(work, work);
    const turn: Turn = { what, done };
    this.#last.set(key, turn);
    const leave = () => {
      if (this.#last.get(key) === turn) this.#last.delete(key);
    };
    done.then(leave, leave);
    return done;
  }
}

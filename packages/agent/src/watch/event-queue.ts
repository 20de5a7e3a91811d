/** A bounded queue of events for one reader. */
import { TorporError } from '@torpor/protocol';

export class EventQueue<T> {
  #items: T[] = [];
  #dropped = 0;
  #failure: TorporError | undefined;
  #waiting: (() => void) | undefined;
  readonly #limit: number;

  constructor(limit: number) {
    this.#limit = limit;
  }

  push(items: readonly T[]): void {
    const room = this.#limit - this.#items.length;
    this.#items.push(...items.slice(0, room));
    this.#dropped += Math.max(0, items.length - room);
    this.#waiting?.();
  }

  fail(error: TorporError): void {
    this.#failure ??= error;
    this.#waiting?.();
  }

  /** Takes all queued events. Throws once for dropped events, after the events before them; later calls go on. */
  drain(): T[] {
    if (this.#items.length > 0) return this.#items.splice(0);
    if (this.#dropped > 0) {
      const lost = this.#dropped;
      this.#dropped = 0;
      throw new TorporError('capacity', `${lost} events were dropped because the reader was too slow.`);
    }
    if (this.#failure !== undefined) throw this.#failure;
    return [];
  }

  /** Waits for the next event. */
  async next(signal: AbortSignal): Promise<T> {
    for (;;) {
      signal.throwIfAborted();
      const item = this.#items.shift() ?? this.drain()[0];
      if (item !== undefined) return item;
      await this.#nextWake(signal);
    }
  }

  #nextWake(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        this.#waiting = undefined;
        signal.removeEventListener('abort', done);
        resolve();
      };
      this.#waiting = done;
      signal.addEventListener('abort', done, { once: true });
    });
  }
}

/** Events on their way to one reader, who may be slow but not endlessly so. */
import { TorporError } from '@torpor/protocol';

export class EventQueue<T> {
  #items: T[] = [];
  #lost = 0;
  #failure: TorporError | undefined;
  #waiting: (() => void) | undefined;
  readonly #limit: number;

  constructor(limit: number) {
    this.#limit = limit;
  }

  push(items: readonly T[]): void {
    const room = this.#limit - this.#items.length;
    this.#items.push(...items.slice(0, room));
    this.#lost += Math.max(0, items.length - room);
    this.#waiting?.();
  }

  fail(error: TorporError): void {
    this.#failure ??= error;
    this.#waiting?.();
  }

  /** Everything at hand. A loss is told once, after what came before it; then it goes on. */
  drain(): T[] {
    if (this.#items.length > 0) return this.#items.splice(0);
    if (this.#lost > 0) {
      const lost = this.#lost;
      this.#lost = 0;
      throw new TorporError('capacity', `${lost} events were dropped because nobody took them.`);
    }
    if (this.#failure !== undefined) throw this.#failure;
    return [];
  }

  /** The next event, whenever it comes. */
  async next(signal: AbortSignal): Promise<T> {
    for (;;) {
      signal.throwIfAborted();
      const item = this.#items.shift() ?? this.drain()[0];
      if (item !== undefined) return item;
      await this.#wakened(signal);
    }
  }

  #wakened(signal: AbortSignal): Promise<void> {
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

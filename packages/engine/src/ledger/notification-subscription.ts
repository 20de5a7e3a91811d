/** One subscription to a notification channel of the database, shared by any number of waiting readers. */
import type { Clock } from '../ports/clock.ts';
import type { Database } from '../ports/database.ts';
import type { LedgerNotifications } from './read.ts';

export class NotificationSubscription implements LedgerNotifications {
  #waiting = new Set<() => void>();
  readonly #clock: Clock;
  /** A notification may get lost with a connection; readers read again after this long without one. */
  readonly #atLeastEveryMs: number;
  readonly #channel: string;
  #unlisten: (() => Promise<void>) | undefined;

  constructor(clock: Clock, atLeastEveryMs: number, channel = 'ledger') {
    this.#clock = clock;
    this.#atLeastEveryMs = atLeastEveryMs;
    this.#channel = channel;
  }

  async start(db: Database): Promise<void> {
    this.#unlisten = await db.listen(this.#channel, () => this.#wakeAll());
  }

  async stop(): Promise<void> {
    await this.#unlisten?.();
    this.#wakeAll();
  }

  next(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    const timer = new AbortController();
    return new Promise((resolve) => {
      const wake = () => {
        this.#waiting.delete(wake);
        signal.removeEventListener('abort', wake);
        timer.abort();
        resolve();
      };
      this.#waiting.add(wake);
      signal.addEventListener('abort', wake);
      this.#clock.sleep(this.#atLeastEveryMs, timer.signal).then(wake, () => {});
    });
  }

  #wakeAll(): void {
    for (const wake of [...this.#waiting]) wake();
  }
}

/** The deadline of a request, from its arrival to its answer. */
import type { Clock } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';

export class RequestDeadline {
  readonly #clock: Clock;
  readonly #graceMs: number;
  readonly #timer = new AbortController();
  readonly #over = new AbortController();
  readonly ms: number;

  constructor(clock: Clock, ms: number, graceMs: number) {
    this.#clock = clock;
    this.ms = ms;
    this.#graceMs = graceMs;
    clock.sleep(ms, this.#timer.signal).then(
      () => this.end(new TorporError('timeout', `There was no answer within ${ms} ms.`)),
      () => {},
    );
  }

  /** Fires at the deadline, or when the client has gone away. */
  get signal(): AbortSignal {
    return this.#over.signal;
  }

  /** Fires the signal before the deadline. */
  end(reason: TorporError): void {
    this.#timer.abort();
    this.#over.abort(reason);
  }

  /** Stops the timer: the request has its answer, or limits its own time from now on. */
  release(): void {
    this.#timer.abort();
  }

  /**
   * Returns the result of `work`. After the deadline `work` has `graceMs` to fail with an error of its own, because it
   * knows best how far it has come. Then the error of `late` is thrown. `work` may continue in the background.
   */
  async run<T>(
    work: (signal: AbortSignal) => Promise<T>,
    late: () => Promise<TorporError> = async () => this.#reason(),
  ): Promise<T> {
    this.signal.throwIfAborted();
    const working = work(this.signal);
    const settled = new AbortController();
    const tooLate = new Promise<never>((_, reject) => {
      const giveUp = () => {
        this.#clock.sleep(this.#graceMs, settled.signal).then(
          () => late().then(reject, reject),
          () => {},
        );
      };
      this.signal.addEventListener('abort', giveUp, { once: true, signal: settled.signal });
    });
    try {
      return await Promise.race([working, tooLate]);
    } finally {
      settled.abort();
      // A later failure of `work` has no reader.
      working.catch(() => {});
    }
  }

  #reason(): TorporError {
    return TorporError.from(this.signal.reason);
  }
}

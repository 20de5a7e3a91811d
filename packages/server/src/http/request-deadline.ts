/** The time a request has in all: from its first byte to its answer, whatever happens behind it. */
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

  /** Fires when the time is over, or nobody waits for the answer any more. */
  get signal(): AbortSignal {
    return this.#over.signal;
  }

  /** Ends the waiting before its time. */
  end(reason: TorporError): void {
    this.#timer.abort();
    this.#over.abort(reason);
  }

  /** The request has its answer, or looks after its own time from here on. */
  release(): void {
    this.#timer.abort();
  }

  /**
   * The result of `work`. When the time is over it has a moment left to answer for itself, because it may
   * know best how far things have come; then `late` says what there is to say. `work` may go on.
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
      // What comes of it later concerns nobody.
      working.catch(() => {});
    }
  }

  #reason(): TorporError {
    return TorporError.from(this.signal.reason);
  }
}

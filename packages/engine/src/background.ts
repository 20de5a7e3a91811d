/** Work that no caller waits for, but that must end before the engine stops. */
import type { Report } from './context.ts';

export class Background {
  readonly #running = new Set<Promise<void>>();
  readonly #report: Report;

  constructor(report: Report) {
    this.#report = report;
  }

  /** Reports a failure. The reconciler repairs what the failed work left behind. */
  run(what: string, work: () => Promise<void>): void {
    const done = work()
      .catch((thrown: unknown) => this.#report(`${what} failed`, { error: thrown }))
      .finally(() => this.#running.delete(done));
    this.#running.add(done);
  }

  async idle(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
  }
}

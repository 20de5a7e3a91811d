/**
 * Keeps a sandbox awake while there is traffic: while requests wait for a response, and for `quietMs` after the last
 * byte. A stream without bytes does not keep its sandbox awake.
 */
import type { Clock } from '@torpor/engine';

export class TrafficLease {
  readonly #clock: Clock;
  readonly #quietMs: number;
  readonly #takeLease: () => () => void;
  readonly #onRelease: () => void;
  readonly #stopping: AbortSignal;
  /** Ends the lease; undefined while the lease is not held. */
  #release: (() => void) | undefined;
  #movedAt = 0;
  #waiting = 0;

  constructor(
    clock: Clock,
    quietMs: number,
    takeLease: () => () => void,
    onRelease: () => void,
    stopping: AbortSignal,
  ) {
    this.#clock = clock;
    this.#quietMs = quietMs;
    this.#takeLease = takeLease;
    this.#onRelease = onRelease;
    this.#stopping = stopping;
  }

  get isHeld(): boolean {
    return this.#release !== undefined;
  }

  bytesMoved(): void {
    this.#movedAt = this.#clock.monotonic();
    if (this.#release !== undefined) return;
    this.#release = this.#takeLease();
    void this.#releaseWhenQuiet();
  }

  /** One more request waits for its response, or (-1) one fewer. */
  countWaiting(change: 1 | -1): void {
    this.#waiting += change;
    this.bytesMoved();
  }

  async #releaseWhenQuiet(): Promise<void> {
    while (!this.#stopping.aborted) {
      const left = this.#quietMs - (this.#clock.monotonic() - this.#movedAt);
      if (this.#waiting === 0 && left <= 0) break;
      await this.#clock.sleep(left > 0 ? left : this.#quietMs, this.#stopping).catch(() => {});
    }
    this.#release?.();
    this.#release = undefined;
    this.#onRelease();
  }
}

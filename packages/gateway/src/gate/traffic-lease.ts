/**
 * Holds a sandbox awake while there is traffic: as long as requests wait for an answer, and for a while after
 * the last byte. A stream on which nothing moves does not keep anybody awake.
 */
import type { Clock } from '@torpor/engine';

export class TrafficLease {
  private readonly clock: Clock;
  private readonly quietMs: number;
  private readonly hold: () => () => void;
  private readonly onRelease: () => void;
  private readonly stopping: AbortSignal;
  private release: (() => void) | undefined;
  private movedAt = 0;
  private waiting = 0;

  constructor(
    clock: Clock,
    quietMs: number,
    hold: () => () => void,
    onRelease: () => void,
    stopping: AbortSignal,
  ) {
    this.clock = clock;
    this.quietMs = quietMs;
    this.hold = hold;
    this.onRelease = onRelease;
    this.stopping = stopping;
  }

  get isHeld(): boolean {
    return this.release !== undefined;
  }

  /** Bytes have moved, or a request has come in. */
  moved(): void {
    this.movedAt = this.clock.monotonic();
    if (this.release !== undefined) return;
    this.release = this.hold();
    void this.watch();
  }

  /** Somebody waits for an answer; to be called again with -1 when not any more. */
  wait(change: 1 | -1): void {
    this.waiting += change;
    this.moved();
  }

  private async watch(): Promise<void> {
    while (!this.stopping.aborted) {
      const left = this.quietMs - (this.clock.monotonic() - this.movedAt);
      if (this.waiting === 0 && left <= 0) break;
      await this.clock.sleep(left > 0 ? left : this.quietMs, this.stopping).catch(() => {});
    }
    this.release?.();
    this.release = undefined;
    this.onRelease();
  }
}

/** Bounds the number of queued requests and their memory, per sandbox and over all sandboxes. */
import { TorporError } from '@torpor/protocol';

export interface QueuedRequestBounds {
  readonly count: number;
  readonly bytes: number;
}

export class QueuedRequestBudget {
  readonly #bounds: QueuedRequestBounds;
  /** The budget that this one is a part of. */
  readonly #overall: QueuedRequestBudget | undefined;
  #count = 0;
  #bytes = 0;

  constructor(bounds: QueuedRequestBounds, overall?: QueuedRequestBudget) {
    this.#bounds = bounds;
    this.#overall = overall;
  }

  get count(): number {
    return this.#count;
  }

  hasRoomFor(bytes: number): boolean {
    const fits = this.#count < this.#bounds.count && this.#bytes + bytes <= this.#bounds.bytes;
    return fits && (this.#overall?.hasRoomFor(bytes) ?? true);
  }

  add(bytes: number): void {
    this.#count++;
    this.#bytes += bytes;
    this.#overall?.add(bytes);
  }

  remove(bytes: number): void {
    this.#count--;
    this.#bytes -= bytes;
    this.#overall?.remove(bytes);
  }
}

export function tooManyQueued(): TorporError {
  return new TorporError('capacity', 'Too many requests wait for this sandbox already.', {
    retryAfterMs: 2_000,
    details: { dispatched: false },
  });
}

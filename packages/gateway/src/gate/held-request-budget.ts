/** How many requests are held, and how much memory they keep, at one door and at all doors together. */
import { TorporError } from '@torpor/protocol';

export interface HeldRequestBounds {
  readonly count: number;
  readonly bytes: number;
}

export class HeldRequestBudget {
  private readonly bounds: HeldRequestBounds;
  private readonly within: HeldRequestBudget | undefined;
  private count = 0;
  private bytes = 0;

  constructor(bounds: HeldRequestBounds, within?: HeldRequestBudget) {
    this.bounds = bounds;
    this.within = within;
  }

  get held(): number {
    return this.count;
  }

  hasRoomFor(bytes: number): boolean {
    const fits = this.count < this.bounds.count && this.bytes + bytes <= this.bounds.bytes;
    return fits && (this.within?.hasRoomFor(bytes) ?? true);
  }

  add(bytes: number): void {
    this.count++;
    this.bytes += bytes;
    this.within?.add(bytes);
  }

  remove(bytes: number): void {
    this.count--;
    this.bytes -= bytes;
    this.within?.remove(bytes);
  }
}

export function tooManyHeld(): TorporError {
  return new TorporError('capacity', 'Too many requests wait for this sandbox already.', {
    retryAfterMs: 2_000,
    details: { dispatched: false },
  });
}

/** The time that the charts of the overview show, up to the present. */
import { computed, signal } from '@preact/signals';
import { isWholeLedger, recentEvents } from '../live/recent-events.ts';
import { now } from '../ui/clock.ts';

export interface TimeRange {
  readonly from: number;
  readonly to: number;
  /** Whether the oldest event that the page knows is the first of the ledger. */
  readonly whole: boolean;
}

const MINUTE_MS = 60_000;
export const SPANS = [10 * MINUTE_MS, 30 * MINUTE_MS, 60 * MINUTE_MS] as const;
const LONGEST = SPANS[2];
export type Span = (typeof SPANS)[number];

/** Undefined until the user chooses. */
const chosen = signal<Span | undefined>(undefined);

/** A new server has no hour to show. */
const fitting = computed<Span>(() => {
  const oldest = recentEvents.value?.at(-1)?.at ?? now.value;
  const fit = SPANS.find((one) => now.value - oldest < one);
  return isWholeLedger.value && fit !== undefined ? fit : LONGEST;
});

export const span = computed<Span>(() => chosen.value ?? fitting.value);

export function chooseSpan(next: Span): void {
  chosen.value = next;
}

export const timeRange = computed<TimeRange>(() => {
  // The clock of the server may be ahead of that of the browser.
  const to = Math.max(now.value, recentEvents.value?.[0]?.at ?? 0);
  return { from: to - span.value, to, whole: isWholeLedger.value };
});

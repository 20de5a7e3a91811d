/** Wakes per minute and how long they took, from the ledger. */
import type { EventView } from '@torpor/sdk';
import type { Point } from '../ui/chart.tsx';

export interface Wakes {
  /** One point per minute. */
  readonly perMinute: readonly Point[];
  /** One point per wake: milliseconds. */
  readonly durations: readonly Point[];
  /** Of all wakes. Undefined without wakes. */
  readonly medianMs: number | undefined;
}

const MINUTE_MS = 60_000;

/** A snapshot and a rollback start the sandbox again too, but no caller waited for a wake. */
function isWake({ type, operationId }: EventView, others: ReadonlySet<string | null>): boolean {
  return type === 'sandbox.resumed' && !others.has(operationId);
}

/** `events` are the newest of the ledger; before the oldest of them nothing is known, and nothing is shown. */
export function wakesOf(events: readonly EventView[], from: number, to: number): Wakes {
  const oldest = events.at(-1)?.at ?? to;
  const begin = Math.max(from, oldest);
  const restarts = events.filter(
    ({ type, data }) =>
      type === 'sandbox.resuming' && (data['reason'] === 'snapshot' || data['reason'] === 'rollback'),
  );
  const others = new Set<string | null>(restarts.map(({ operationId }) => operationId));
  const wakes = events
    .filter((event) => isWake(event, others) && event.at >= begin && event.at <= to)
    .toReversed();
  const perMinute: Point[] = [];
  for (let at = Math.ceil(begin / MINUTE_MS) * MINUTE_MS; at <= to; at += MINUTE_MS) {
    perMinute.push({ at, value: wakes.filter((wake) => wake.at > at - MINUTE_MS && wake.at <= at).length });
  }
  const durations = wakes.flatMap(({ at, data }) => {
    const ms = data['durationMs'];
    return typeof ms === 'number' ? [{ at, value: ms }] : [];
  });
  const sorted = durations.map(({ value }) => value).toSorted((a, b) => a - b);
  return { perMinute, durations, medianMs: sorted[Math.floor(sorted.length / 2)] };
}

/** Wakes per minute and how long they took, from the ledger. Pure functions. */
import type { EventView, SandboxId } from '@torpor/sdk';
import type { TimeRange } from './time-range.ts';

export interface Wake {
  readonly at: number;
  readonly ms: number;
  readonly sandboxId: SandboxId;
  /** Whether the processes went on; otherwise the sandbox started again from its files. */
  readonly fromMemory: boolean;
}

interface Minute {
  /** Its begin. */
  readonly at: number;
  readonly wakes: number;
}

export interface Wakes {
  /** The minutes of the clock, the last of them not over yet. */
  readonly minutes: readonly Minute[];
  /** Oldest first. */
  readonly wakes: readonly Wake[];
}

const MINUTE_MS = 60_000;

/** `events` are the newest of the ledger; before the oldest of them nothing is known, and nothing is shown. */
export function wakesOf(events: readonly EventView[], { from, to, whole }: TimeRange): Wakes {
  const begin = whole ? from : Math.max(from, events.at(-1)?.at ?? to);
  // A snapshot and a rollback start the sandbox again too, but no caller waited for a wake.
  const others = new Set<string | null>(
    events
      .filter(
        ({ type, data }) =>
          type === 'sandbox.resuming' && (data['reason'] === 'snapshot' || data['reason'] === 'rollback'),
      )
      .map(({ operationId }) => operationId),
  );
  const wakes = events
    .filter(
      ({ type, at, operationId }) =>
        type === 'sandbox.resumed' && at >= begin && at <= to && !others.has(operationId),
    )
    .flatMap(({ at, sandboxId, data }): Wake[] => {
      const { durationMs: ms, source } = data as { durationMs?: unknown; source?: { kind?: unknown } };
      return typeof ms === 'number' ? [{ at, ms, sandboxId, fromMemory: source?.kind === 'memory' }] : [];
    })
    .toReversed();
  const minutes: Minute[] = [];
  for (let at = Math.floor(begin / MINUTE_MS) * MINUTE_MS; at <= to; at += MINUTE_MS) {
    minutes.push({ at, wakes: wakes.filter((wake) => wake.at >= at && wake.at < at + MINUTE_MS).length });
  }
  return { minutes, wakes };
}

/** Between the bars of two minutes, on each side. */
const GAP_MS = 0.12 * MINUTE_MS;
/** So that the bar of a minute that has just begun can be seen. */
const LEAST_WIDTH = 0.005;

/** Where the bar of a minute is, as shares of the range. The first and the last minute are cut. */
export function barOf(at: number, { from, to }: TimeRange): { readonly x: number; readonly width: number } {
  const share = (moment: number) => (moment - from) / (to - from);
  const end = Math.min(1, Math.max(LEAST_WIDTH, share(at + MINUTE_MS - GAP_MS)));
  const x = Math.min(end - LEAST_WIDTH, Math.max(0, share(at + GAP_MS)));
  return { x, width: end - x };
}

/** The time within which this share of the wakes was done. Undefined without wakes. */
export function wakeTime(wakes: readonly Wake[], share: number): number | undefined {
  const sorted = wakes.map(({ ms }) => ms).toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}

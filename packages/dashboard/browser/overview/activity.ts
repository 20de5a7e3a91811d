/** When each sandbox ran and slept, from the ledger. Pure functions. */
import type { EventView, SandboxState, SandboxView } from '@torpor/sdk';
import type { TimeRange } from './time-range.ts';

type LaneState = 'running' | 'changing' | 'asleep' | 'bad';

export interface LanePart {
  readonly from: number;
  readonly to: number;
  readonly state: LaneState;
}

/** The history of one sandbox. */
export interface Lane {
  readonly sandbox: SandboxView;
  /** Oldest first. A time before the first part is not known, or the sandbox was not there yet. */
  readonly parts: readonly LanePart[];
  /** Since when it is in its present state. Null: for longer than the page knows. */
  readonly since: number | null;
}

const LANE_STATES: Readonly<Record<SandboxState, LaneState | null>> = {
  creating: 'changing',
  running: 'running',
  pausing: 'changing',
  paused: 'asleep',
  resuming: 'changing',
  killing: 'changing',
  killed: null,
  failed: 'bad',
  lost: 'bad',
};

/**
 * The lanes of the `most` sandboxes that changed last, the newest sandbox first: a lane stays where it is while others
 * change. `events` are the newest of the ledger, newest first.
 */
export function lanesOf(
  events: readonly EventView[],
  present: Iterable<SandboxView>,
  range: TimeRange,
  most: number,
): Lane[] {
  const changes = new Map<string, EventView[]>();
  for (const event of events.toReversed()) {
    if (event.previousState === event.state) continue;
    const known = changes.get(event.sandboxId);
    if (known === undefined) changes.set(event.sandboxId, [event]);
    else known.push(event);
  }
  const known = range.whole ? range.from : Math.max(range.from, events.at(-1)?.at ?? range.to);
  return [...present]
    .filter(({ state }) => LANE_STATES[state] !== null)
    .map((sandbox): Lane => {
      const own = changes.get(sandbox.id) ?? [];
      return { sandbox, parts: partsOf(sandbox, own, known, range), since: own.at(-1)?.at ?? null };
    })
    .toSorted((a, b) => (b.since ?? b.sandbox.createdAt) - (a.since ?? a.sandbox.createdAt))
    .slice(0, most)
    .toSorted((a, b) => b.sandbox.createdAt - a.sandbox.createdAt || (a.sandbox.id < b.sandbox.id ? -1 : 1));
}

function partsOf(
  { state, createdAt }: SandboxView,
  changes: readonly EventView[],
  known: number,
  { to }: TimeRange,
): LanePart[] {
  const parts: LanePart[] = [];
  let at = Math.max(known, createdAt);
  let present = changes[0]?.previousState ?? (changes.length === 0 ? state : null);
  const until = (end: number) => {
    const shown = present === null ? null : LANE_STATES[present];
    if (end <= at) return;
    if (shown !== null) parts.push({ from: at, to: end, state: shown });
    at = end;
  };
  for (const change of changes) {
    until(Math.min(change.at, to));
    present = change.state;
  }
  until(to);
  return parts;
}

/** The share of the known time in which the sandbox ran, from 0 to 1. */
export function runningShare(parts: readonly LanePart[]): number {
  const sum = (some: readonly LanePart[]) => some.reduce((total, { from, to }) => total + to - from, 0);
  const all = sum(parts);
  return all === 0 ? 0 : sum(parts.filter(({ state }) => state === 'running')) / all;
}

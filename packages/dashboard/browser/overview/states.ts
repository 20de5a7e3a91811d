/** How many sandboxes were in which state over time, from the ledger. Pure functions. */
import type { EventView, SandboxState, SandboxView } from '@torpor/sdk';
import type { TimeRange } from './time-range.ts';

export const SHOWN_STATES = ['running', 'waking', 'asleep'] as const;
export type ShownState = (typeof SHOWN_STATES)[number];

/** The counts from this moment on, until the next sample. */
export interface StateSample {
  readonly at: number;
  readonly counts: Readonly<Record<ShownState, number>>;
}

const SHOWN_AS: Readonly<Partial<Record<SandboxState, ShownState>>> = {
  running: 'running',
  pausing: 'running',
  creating: 'waking',
  resuming: 'waking',
  paused: 'asleep',
};

/**
 * `events` are the newest of the ledger, newest first. Before the oldest of them nothing is known unless the range is
 * `whole`, and nothing is returned. A sandbox without a change in that time was always as it is now.
 */
export function statesOverTime(
  events: readonly EventView[],
  present: Iterable<SandboxView>,
  { from, to, whole }: TimeRange,
): StateSample[] {
  const begin = whole ? from : Math.max(from, events.at(-1)?.at ?? to);
  const changes = events.filter(({ previousState, state }) => previousState !== state).toReversed();
  const counts: Record<ShownState, number> = { running: 0, waking: 0, asleep: 0 };
  const add = (state: SandboxState | null, by: 1 | -1) => {
    const shown = state === null ? undefined : SHOWN_AS[state];
    if (shown !== undefined) counts[shown] += by;
  };
  const changed = new Set<string>();
  for (const { sandboxId, previousState } of changes) {
    if (changed.has(sandboxId)) continue;
    changed.add(sandboxId);
    add(previousState, 1);
  }
  for (const { id, state } of present) if (!changed.has(id)) add(state, 1);
  const samples: StateSample[] = [];
  const sample = (at: number) => {
    if (samples.at(-1)?.at === at) samples.pop();
    samples.push({ at, counts: { ...counts } });
  };
  for (const { at, previousState, state } of changes) {
    if (at > begin && samples.length === 0) sample(begin);
    add(previousState, -1);
    add(state, 1);
    if (at > begin && at <= to) sample(at);
  }
  if (samples.length === 0) sample(begin);
  sample(to);
  return samples;
}

/** How many sandboxes were in which state over time, from the ledger. Pure functions. */
import type { EventView, SandboxState, SandboxView } from '@torpor/sdk';

export const SHOWN_STATES = ['running', 'waking', 'asleep'] as const;
export type ShownState = (typeof SHOWN_STATES)[number];

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

const EVERY_MS = 30_000;

type Change = Pick<EventView, 'at' | 'previousState' | 'state'>;

/**
 * `events` are the newest of the ledger, newest first; `whole` says that there are no earlier ones. Before the oldest of
 * them nothing is known, and nothing is returned. A sandbox without a change in that time was always as it is now.
 */
export function statesOverTime(
  events: readonly EventView[],
  present: Iterable<SandboxView>,
  range: { readonly from: number; readonly to: number; readonly whole: boolean },
): StateSample[] {
  const begin = range.whole ? range.from : Math.max(range.from, events.at(-1)?.at ?? range.to);
  const changes = events.filter(({ previousState, state }) => previousState !== state).toReversed();
  const firsts = new Map<string, Change>();
  for (const change of changes) {
    if (!firsts.has(change.sandboxId)) firsts.set(change.sandboxId, change);
  }
  const counts: Record<ShownState, number> = { running: 0, waking: 0, asleep: 0 };
  const add = (state: SandboxState | null, by: 1 | -1) => {
    const shown = state === null ? undefined : SHOWN_AS[state];
    if (shown !== undefined) counts[shown] += by;
  };
  for (const { previousState } of firsts.values()) add(previousState, 1);
  for (const { id, state } of present) if (!firsts.has(id)) add(state, 1);
  const samples: StateSample[] = [];
  let next = 0;
  for (let at = begin; at <= range.to; at += EVERY_MS) {
    for (let change = changes[next]; change !== undefined && change.at <= at; change = changes[++next]) {
      add(change.previousState, -1);
      add(change.state, 1);
    }
    samples.push({ at, counts: { ...counts } });
  }
  return samples;
}

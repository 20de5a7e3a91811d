/** Which sandboxes the list shows, and in which order. Pure functions. */
import type { SandboxState, SandboxView } from '@torpor/sdk';

/** A group of states that people look for. */
const GROUPS = {
  all: ['creating', 'running', 'pausing', 'paused', 'resuming', 'killing', 'failed', 'lost'],
  running: ['creating', 'running', 'resuming'],
  paused: ['pausing', 'paused'],
  trouble: ['failed', 'lost'],
  killed: ['killing', 'killed'],
} as const satisfies Record<string, readonly SandboxState[]>;
export type Group = keyof typeof GROUPS;
export const GROUP_NAMES = Object.keys(GROUPS) as Group[];

export type Column = 'name' | 'state' | 'template' | 'expires' | 'created';

export interface ListChoice {
  readonly group: Group;
  readonly text: string;
  readonly sortBy: Column;
  readonly descending: boolean;
}

/** When a sandbox ends by itself: its lifetime while it runs, its retention while it sleeps. */
export function expiryOf({ state, endsAt, deletesAt }: SandboxView): number | null {
  if (state === 'paused') return deletesAt;
  return state === 'running' ? endsAt : null;
}

const KEYS: Readonly<Record<Column, (sandbox: SandboxView) => string | number>> = {
  name: ({ name, id }) => `${name === null ? '~' : name.toLowerCase()} ${id}`,
  state: ({ state }) => state,
  template: ({ template }) => template ?? '',
  expires: (sandbox) => expiryOf(sandbox) ?? Number.POSITIVE_INFINITY,
  created: ({ createdAt }) => createdAt,
};

export function inGroup({ state }: SandboxView, group: Group): boolean {
  return (GROUPS[group] as readonly SandboxState[]).includes(state);
}

/** Every word must occur in the name, id, template, runtime, node or metadata. */
function matches(sandbox: SandboxView, text: string): boolean {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const { name, id, template, runtime, node, metadata } = sandbox;
  const pairs = Object.entries(metadata).map(([key, value]) => `${key}=${value}`);
  const all = [name ?? '', id, template ?? '', runtime, `node=${node}`, ...pairs].join(' ').toLowerCase();
  return words.every((word) => all.includes(word));
}

export function chosenSandboxes(all: Iterable<SandboxView>, choice: ListChoice): SandboxView[] {
  const { group, text, sortBy, descending } = choice;
  const keyed = [...all]
    .filter((sandbox) => inGroup(sandbox, group) && matches(sandbox, text))
    .map((sandbox) => ({ sandbox, key: KEYS[sortBy](sandbox) }));
  const sign = descending ? -1 : 1;
  keyed.sort((a, b) => {
    if (a.key !== b.key) return a.key < b.key ? -sign : sign;
    return a.sandbox.id < b.sandbox.id ? -1 : 1;
  });
  return keyed.map(({ sandbox }) => sandbox);
}

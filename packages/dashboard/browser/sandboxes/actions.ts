/** What can be done with a sandbox, by its state. An action that wakes a sandbox says so. */
import type { SandboxId, SandboxState, SandboxView } from '@torpor/sdk';
import { put } from '../live/sandboxes.ts';
import { canChange, torpor } from '../shell/session.ts';
import { confirm } from '../ui/confirm.tsx';
import { attempt, say } from '../ui/toasts.tsx';
import { plural } from '../ui/units.ts';

export interface Action {
  readonly label: string;
  readonly states: readonly SandboxState[];
  readonly isDangerous?: true;
  /** What the question before a dangerous action says. */
  readonly warning?: string;
  /** Resolves with a message for people. */
  run(id: SandboxId): Promise<string>;
}

const ALIVE: readonly SandboxState[] = ['creating', 'running', 'pausing', 'paused', 'resuming'];

export const ACTIONS = {
  pause: {
    label: 'Pause',
    states: ['running'],
    run: async (id) => {
      const { sandbox, checkpoint } = await torpor().sandboxes.pause(id);
      put([sandbox]);
      return `Paused with its ${checkpoint.parts.memory ? 'memory and files' : 'files'}.`;
    },
  },
  wake: {
    label: 'Wake',
    states: ['paused'],
    run: async (id) => {
      const { sandbox, lost } = await torpor().sandboxes.resume(id);
      put([sandbox]);
      return lost.length === 0 ? 'Awake, nothing was lost.' : `Awake; lost: ${lost.join(', ')}.`;
    },
  },
  snapshot: {
    label: 'Snapshot',
    states: ['running', 'paused'],
    run: async (id) => `Sealed ${(await torpor().sandboxes.snapshot(id)).id}.`,
  },
  fork: {
    label: 'Fork',
    states: ['running', 'paused'],
    run: async (id) => {
      const { items } = await torpor().sandboxes.fork(id);
      const [first] = items;
      if (first !== undefined && 'error' in first) throw new Error(first.error.message);
      if (first !== undefined) put([first.sandbox]);
      return `Forked as ${first?.sandbox.id}.`;
    },
  },
  rollback: {
    label: 'Roll back',
    states: ['running', 'paused'],
    isDangerous: true,
    warning:
      'It goes back to its last checkpoint and runs. What changed after that checkpoint is lost. The checkpoints tab has the earlier ones.',
    run: async (id) => {
      const [last] = (await torpor().sandboxes.checkpoints(id, { limit: 1 })).items;
      if (last === undefined) throw new Error('It has no checkpoint of its own yet.');
      const { sandbox } = await torpor().sandboxes.rollback(id, last.id);
      put([sandbox]);
      return `Rolled back to ${last.names[0] ?? last.id}.`;
    },
  },
  kill: {
    label: 'Kill',
    states: ALIVE,
    isDangerous: true,
    warning: 'Its processes end and its files are deleted. This cannot be undone.',
    run: async (id) => {
      put([await torpor().sandboxes.kill(id)]);
      return 'Killed.';
    },
  },
} as const satisfies Record<string, Action>;

export type ActionName = keyof typeof ACTIONS;
export const ACTION_NAMES = Object.keys(ACTIONS) as ActionName[];

export function mayRun(name: ActionName, { state, checkpointHealth }: SandboxView): boolean {
  // Without a checkpoint of its own there is nothing to roll back to.
  if (name === 'rollback' && checkpointHealth === null) return false;
  return canChange() && (ACTIONS[name].states as readonly SandboxState[]).includes(state);
}

export function nameOf({ name, id }: Pick<SandboxView, 'name' | 'id'>): string {
  return name ?? id;
}

/** Runs an action on one sandbox, and asks first when it is dangerous. */
export async function act(name: ActionName, sandbox: SandboxView): Promise<void> {
  const action: Action = ACTIONS[name];
  if (action.isDangerous) {
    const title = `${action.label} ${nameOf(sandbox)}?`;
    if (!(await confirm(title, action.warning ?? '', action.label))) return;
  }
  const message = await attempt(() => action.run(sandbox.id));
  if (message !== undefined) say(`${nameOf(sandbox)}: ${message}`);
}

/** At most this many requests of a bulk action are under way at once. */
const AT_ONCE = 4;

/** Runs an action on all chosen sandboxes whose state allows it. */
export async function actOnAll(name: ActionName, chosen: readonly SandboxView[]): Promise<void> {
  const action: Action = ACTIONS[name];
  const fit = chosen.filter((sandbox) => mayRun(name, sandbox));
  if (action.isDangerous) {
    const title = `${action.label} ${plural(fit.length, 'sandbox', 'sandboxes')}?`;
    if (!(await confirm(title, action.warning ?? '', action.label))) return;
  }
  const waiting = [...fit];
  let done = 0;
  const work = async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const { id } = next;
      if ((await attempt(() => action.run(id))) !== undefined) done++;
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  say(`${action.label}: ${done} of ${plural(fit.length, 'sandbox', 'sandboxes')} done.`);
}

/** Finds the sandbox that an argument names: by id, by name, or from a list on a terminal. */
import type { SandboxId, SandboxState, SandboxView } from '@torpor/protocol';
import type { Torpor } from '@torpor/sdk';
import type { Cli } from './cli.ts';
import { CliError } from './failure.ts';
import { relative } from './human-units.ts';

/** States of sandboxes that have not ended. */
export const LIVE_STATES: readonly SandboxState[] = [
  'creating',
  'running',
  'pausing',
  'paused',
  'resuming',
  'killing',
];

/** States of ended sandboxes. */
const ENDED_STATES: readonly SandboxState[] = ['killed', 'failed', 'lost'];

/** For commands that change a sandbox. A name must belong to a live sandbox. */
export async function sandboxOf(cli: Cli, given: string | undefined): Promise<SandboxId> {
  return idOf(cli, given, 'live');
}

/** For commands that only read. When no live sandbox has the name, the newest ended one is used. */
export async function anySandboxOf(cli: Cli, given: string | undefined): Promise<SandboxId> {
  return idOf(cli, given, 'ended too');
}

type Wanted = 'live' | 'ended too';

async function idOf(cli: Cli, given: string | undefined, wanted: Wanted): Promise<SandboxId> {
  if (given === undefined) return choose(cli);
  // The server checks whether an id exists.
  if (given.startsWith('sbx_') || /^[a-z0-9]{20}$/.test(given)) return given as SandboxId;
  return idByName(await cli.torpor(), given, wanted, cli.signal);
}

async function idByName(
  torpor: Torpor,
  name: string,
  wanted: Wanted,
  signal: AbortSignal,
): Promise<SandboxId> {
  const found = await findByName(torpor, name, LIVE_STATES, signal);
  const [only, ...more] = found;
  if (more.length > 0) {
    const ids = found.map(({ id }) => id);
    throw new CliError('INVALID_ARGUMENT', `${found.length} sandboxes are called "${name}".`, {
      hint: `Use an id: ${ids.join(', ')}`,
      details: { ids },
    });
  }
  if (only !== undefined) return only.id;
  const ended = wanted === 'live' ? [] : await findByName(torpor, name, ENDED_STATES, signal);
  const [newest] = ended.sort((a, b) => b.createdAt - a.createdAt);
  if (newest !== undefined) return newest.id;
  throw new CliError('NOT_FOUND', `There is no sandbox called "${name}".`, { hint: 'See `torpor ls`.' });
}

async function findByName(
  torpor: Torpor,
  name: string,
  state: readonly SandboxState[],
  signal: AbortSignal,
): Promise<SandboxView[]> {
  const found: SandboxView[] = [];
  for await (const sandbox of torpor.sandboxes.list({ state, name, limit: 1_000, signal })) {
    if (sandbox.name === name) found.push(sandbox);
  }
  return found;
}

async function choose(cli: Cli): Promise<SandboxId> {
  if (!cli.interactive) {
    throw new CliError('INVALID_ARGUMENT', "Missing required argument 'sandbox'.", {
      hint: 'Give an id or a name. `torpor ls` lists them.',
    });
  }
  const torpor = await cli.torpor();
  const options: { value: SandboxId; label: string; hint: string }[] = [];
  for await (const { id, name, state, createdAt } of torpor.sandboxes.list({ state: LIVE_STATES })) {
    options.push({ value: id, label: name ?? id, hint: `${state}, ${relative(createdAt, cli.io.now())}` });
  }
  if (options.length === 0) {
    throw new CliError('NOT_FOUND', 'There are no sandboxes yet.', {
      hint: 'Create one with `torpor create`.',
    });
  }
  const { isCancel, select } = await import('@clack/prompts');
  const chosen = await select({
    message: 'Which sandbox?',
    options,
    output: cli.io.stderr,
    signal: cli.signal,
  });
  if (isCancel(chosen)) throw new CliError('CANCELLED', 'Cancelled.');
  return chosen;
}

/** Which sandbox is meant: by id, by name, or chosen from a list by somebody at a terminal. */
import type { SandboxId, SandboxState, SandboxView } from '@torpor/protocol';
import type { Torpor } from '@torpor/sdk';
import type { Cli } from './cli.ts';
import { CliError } from './failure.ts';
import { relative } from './human-units.ts';

/** States in which there is still something to do with a sandbox. */
export const LIVE_STATES: readonly SandboxState[] = [
  'creating',
  'running',
  'pausing',
  'paused',
  'resuming',
  'killing',
];

export async function sandboxOf(cli: Cli, given: string | undefined): Promise<SandboxId> {
  if (given === undefined) return choose(cli);
  // Whatever looks like an id is the server's to judge: it knows more about it than its form.
  if (given.startsWith('sbx_') || /^[a-z0-9]{20}$/.test(given)) return given as SandboxId;
  return byName(await cli.torpor(), given, cli.signal);
}

async function byName(torpor: Torpor, name: string, signal: AbortSignal): Promise<SandboxId> {
  const found: SandboxView[] = [];
  for await (const sandbox of torpor.sandboxes.list({ state: LIVE_STATES, limit: 1_000, signal })) {
    if (sandbox.name === name) found.push(sandbox);
  }
  const [only, ...more] = found;
  if (only === undefined) {
    throw new CliError('NOT_FOUND', `There is no sandbox called "${name}".`, { hint: 'See `torpor ls`.' });
  }
  if (more.length > 0) {
    const ids = found.map(({ id }) => id);
    throw new CliError('INVALID_ARGUMENT', `${found.length} sandboxes are called "${name}".`, {
      hint: `Say which by its id: ${ids.join(', ')}`,
      details: { ids },
    });
  }
  return only.id;
}

async function choose(cli: Cli): Promise<SandboxId> {
  if (!cli.interactive) {
    throw new CliError('INVALID_ARGUMENT', "Missing required argument 'sandbox'.", {
      hint: 'Give its id or its name; `torpor ls` lists them.',
    });
  }
  const torpor = await cli.torpor();
  const options: { value: SandboxId; label: string; hint: string }[] = [];
  for await (const { id, name, state, createdAt } of torpor.sandboxes.list({ state: LIVE_STATES })) {
    options.push({ value: id, label: name ?? id, hint: `${state}, ${relative(createdAt, cli.io.now())}` });
  }
  if (options.length === 0) {
    throw new CliError('NOT_FOUND', 'There is no sandbox yet.', { hint: 'Make one with `torpor create`.' });
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

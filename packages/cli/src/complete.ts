/** Shell completion: prints what may come next on an unfinished command line. */
import type { Command as Completions } from '@bomb.sh/tab';
import type { Command, Option } from 'commander';
import { readCommandLine } from './arguments.ts';
import { buildCommand } from './build-command.ts';
import { Cli } from './cli.ts';
import { COMMANDS, findCommand } from './command-table.ts';
import type { Io } from './io.ts';
import { LIVE_STATES } from './sandbox-argument.ts';

/** A longer wait would make the shell feel stuck. */
const MAX_WAIT_MS = 400;

/** `words` are `--` and the command line so far. The last word may be empty. */
export async function complete(words: readonly string[], io: Io): Promise<number> {
  const { default: tab } = await import('@bomb.sh/tab');
  const line = words[0] === '--' ? words.slice(1) : [...words];
  const named = findCommand(readCommandLine(line).name ?? '');
  for (const entry of COMMANDS) {
    for (const name of [entry.name, ...(entry === named ? (entry.aliases ?? []) : [])]) {
      tab.command(name, entry.summary);
    }
  }
  if (named !== undefined) {
    const command = await buildCommand(named, io, new AbortController().signal, { exitCode: 0, json: false });
    const sandboxes = await sandboxNames(io);
    for (const name of [named.name, ...(named.aliases ?? [])]) {
      addCompletions(tab.command(name, named.summary), command, sandboxes);
      for (const sub of command.commands)
        addCompletions(tab.command(`${name} ${sub.name()}`, sub.summary()), sub, sandboxes);
    }
  }
  tab.parse([...line]);
  return 0;
}

type Names = readonly (readonly [name: string, about: string])[];

function addCompletions(completions: Completions, command: Command, sandboxes: Names): void {
  for (const option of command.options) {
    const name = option.long?.slice(2);
    if (name === undefined) continue;
    const alias = option.short?.slice(1);
    const choices = choicesOf(option);
    if (choices === undefined) completions.option(name, option.description, alias);
    else completions.option(name, option.description, addChoices(choices), alias);
  }
  for (const argument of command.registeredArguments) {
    const isSandbox = argument.name().startsWith('sandbox');
    completions.argument(
      argument.name(),
      (add) => {
        if (isSandbox) for (const [name, about] of sandboxes) add(name, about);
        for (const choice of argument.argChoices ?? []) add(choice, '');
      },
      argument.variadic,
    );
  }
}

function addChoices(choices: readonly string[]) {
  return (add: (value: string, about: string) => void) => {
    for (const choice of choices) add(choice, '');
  };
}

/** Undefined for a flag without a value. */
function choicesOf(option: Option): readonly string[] | undefined {
  return option.required || option.optional ? (option.argChoices ?? []) : undefined;
}

/** An unreachable server gives no names and no error, because the user is typing. */
async function sandboxNames(io: Io): Promise<Names> {
  try {
    const { sandboxes } = await new Cli(io, {}, new AbortController().signal).torpor();
    const signal = AbortSignal.timeout(MAX_WAIT_MS);
    const { items } = await sandboxes.page({ state: LIVE_STATES, limit: 100, signal });
    return items.map(({ id, name, state }) => [name ?? id, state]);
  } catch {
    return [];
  }
}

/** Parses the arguments of one command and runs it. Parser errors become `CliError`s. */
import { CommanderError } from 'commander';
import { guardCommand } from './arguments.ts';
import { buildCommand, type Outcome } from './build-command.ts';
import type { CommandEntry } from './command-table.ts';
import { EXIT } from './exit-codes.ts';
import { CliError } from './failure.ts';
import type { Io } from './io.ts';

/** Commands whose arguments end in another program's command line, with the number of words before it. */
const ENDS_IN_COMMAND: Readonly<Record<string, number>> = { exec: 1, shell: 1 };

export async function runCommand(
  entry: CommandEntry,
  rest: readonly string[],
  io: Io,
  signal: AbortSignal,
  outcome: Outcome,
): Promise<number> {
  const command = await buildCommand(entry, io, signal, outcome);
  const wordsBefore = ENDS_IN_COMMAND[entry.name];
  const takesValue = (text: string) =>
    command.options.some(
      (option) => (option.long === text || option.short === text) && (option.required || option.optional),
    );
  const args = wordsBefore === undefined ? rest : guardCommand(rest, takesValue, wordsBefore);
  try {
    await command.parseAsync(args, { from: 'user' });
  } catch (thrown) {
    if (!(thrown instanceof CommanderError)) throw thrown;
    if (thrown.exitCode === 0) return EXIT.ok;
    // A command that has only subcommands was called without one.
    if (thrown.code === 'commander.help') {
      command.outputHelp();
      return EXIT.invalid;
    }
    throw argumentError(thrown, entry.name);
  }
  return outcome.exitCode;
}

function argumentError(error: CommanderError, name: string): CliError {
  const [first = '', ...more] = error.message.replace(/^error: /, '').split('\n');
  const message = `${first.charAt(0).toUpperCase()}${first.slice(1)}${/[.?)]$/.test(first) ? '' : '.'}`;
  const suggestion = more.join(' ').trim();
  return new CliError('INVALID_ARGUMENT', message, { hint: suggestion || `See \`torpor ${name} --help\`.` });
}

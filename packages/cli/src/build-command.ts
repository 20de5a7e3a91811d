/** Puts one command together: the options that all have, its own, and help that teaches. */
import { Command, Option } from 'commander';
import { Cli, type CommonOptions, type Handler, type HandlerFactory } from './cli.ts';
import type { CommandEntry } from './command-table.ts';
import type { Io } from './io.ts';

/** What is known of a command once it runs: how failures are to be told, and what to exit with. */
export interface Outcome {
  exitCode: number;
  json: boolean;
}

const COMMON_OPTIONS = 'Common options:';

/** What is loaded of a command, ready to parse its arguments. `outcome` has what it says to exit with. */
export async function buildCommand(
  entry: CommandEntry,
  io: Io,
  signal: AbortSignal,
  outcome: Outcome,
): Promise<Command> {
  const command = new Command(entry.name);
  command.summary(entry.summary).description(`${capital(entry.summary)}.`);
  if (entry.aliases !== undefined) command.aliases(entry.aliases);
  const { define } = await entry.load();
  define(command, handlerFactory(io, signal, outcome));
  for (const one of [command, ...command.commands]) addCommonOptions(one, io);
  // The program's name stands in its usage, though nothing above it is built.
  const parent = new Command('torpor');
  parent.addCommand(command);
  return command;
}

function handlerFactory(io: Io, signal: AbortSignal, outcome: Outcome): HandlerFactory {
  return <O>(work: Handler<O>) =>
    async function (this: Command): Promise<void> {
      const options = this.optsWithGlobals() as O & CommonOptions;
      const cli = new Cli(io, options, signal);
      outcome.json = cli.json;
      const code = await work(
        cli,
        this.processedArgs.flat().filter((arg) => arg !== undefined) as string[],
        options,
      );
      outcome.exitCode = code ?? 0;
    };
}

function addCommonOptions(command: Command, io: Io): void {
  const writeOut = (text: string) => void io.stdout.write(text);
  command.exitOverride().configureOutput({ writeOut, writeErr: () => {} });
  command
    .helpCommand(false)
    .addHelpOption(new Option('-h, --help', 'show this help').helpGroup(COMMON_OPTIONS));
  const common = [
    new Option('--json', 'answer as JSON; errors too, on stderr'),
    new Option('--url <url>', 'the server (TORPOR_URL)'),
    new Option('--api-key <key>', 'the key for it (TORPOR_API_KEY)'),
    new Option('--data-dir <dir>', 'where the local server keeps its data (TORPOR_DATA_DIR)'),
    new Option('--org-id <org>', 'refuse to go on when the key belongs to another organisation'),
  ];
  for (const option of common) {
    if (!command.options.some(({ long }) => long === option.long))
      command.addOption(option.helpGroup(COMMON_OPTIONS));
  }
}

export interface CommandExamples {
  /** Each with what it does, in a few words. */
  readonly examples: readonly (readonly [line: string, what: string])[];
  readonly seeAlso: readonly string[];
}

/** Examples and neighbours under the help of a command. */
export function addExamples(command: Command, { examples, seeAlso }: CommandExamples): void {
  const width = Math.max(...examples.map(([line]) => line.length));
  const lines = examples.map(([line, what]) => `  $ ${line.padEnd(width)}  # ${what}`);
  const also = seeAlso.map((name) => `torpor ${name}`).join(', ');
  command.addHelpText('after', `\nExamples:\n${lines.join('\n')}\n\nSee also: ${also}`);
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Builds one command: its own options, the common options, and help with examples. */
import { Command, Option } from 'commander';
import { Cli, type CommonOptions, type Handler, type HandlerFactory } from './cli.ts';
import type { CommandEntry } from './command-table.ts';
import type { Io } from './io.ts';

/** Set while a command runs: its exit code, and whether errors are printed as JSON. */
export interface Outcome {
  exitCode: number;
  json: boolean;
}

export const COMMON_OPTIONS = 'Common options:';

/** Loads a command and prepares it to parse its arguments. The command sets `outcome`. */
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
  // The parent only adds the program's name to the usage line.
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
    new Option('--json', 'print the answer as JSON, and errors as JSON on stderr'),
    new Option('--url <url>', 'address of the server (TORPOR_URL)'),
    new Option('--api-key <key>', 'API key (TORPOR_API_KEY)'),
    new Option('--data-dir <dir>', 'data directory of the local server (TORPOR_DATA_DIR)'),
    new Option('--org-id <org>', 'fail when the key belongs to another organisation'),
  ];
  for (const option of common) {
    if (!command.options.some(({ long }) => long === option.long))
      command.addOption(option.helpGroup(COMMON_OPTIONS));
  }
}

export interface CommandExamples {
  /** Each example has a short description. */
  readonly examples: readonly (readonly [line: string, what: string])[];
  readonly seeAlso: readonly string[];
}

const examplesByCommand = new WeakMap<Command, CommandExamples>();

/** The examples of a command, for the reference page. */
export function examplesOf(command: Command): CommandExamples | undefined {
  return examplesByCommand.get(command);
}

/** Adds examples and related commands to the help of a command. */
export function addExamples(command: Command, commandExamples: CommandExamples): void {
  examplesByCommand.set(command, commandExamples);
  const { examples, seeAlso } = commandExamples;
  const width = Math.max(...examples.map(([line]) => line.length));
  const lines = examples.map(([line, what]) => `  $ ${line.padEnd(width)}  # ${what}`);
  const also = seeAlso.map((name) => `torpor ${name}`).join(', ');
  command.addHelpText('after', `\nExamples:\n${lines.join('\n')}\n\nSee also: ${also}`);
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

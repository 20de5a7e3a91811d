/** The entry point of `torpor`: finds the command, runs it, and exits with its code. */
import { readCommandLine, similar } from './arguments.ts';
import type { Outcome } from './build-command.ts';
import { COMMANDS, findCommand } from './command-table.ts';
import { EXIT } from './exit-codes.ts';
import { CliError, failureJson, failureOf, failureText } from './failure.ts';
import { type Io, realIo } from './io.ts';
import { overview, startPage } from './start-page.ts';

export async function main(): Promise<void> {
  const io = realIo();
  const argv = process.argv.slice(2);
  // A closed pipe, as in `torpor events | head`, is not an error.
  io.stdout.on('error', (error: NodeJS.ErrnoException) =>
    process.exit(error.code === 'EPIPE' ? EXIT.ok : EXIT.general),
  );
  const interrupt = new AbortController();
  const named = findCommand(readCommandLine(argv).name ?? '');
  if (named?.ownSignals !== true) onInterrupt(interrupt);
  process.exit(await run(argv, io, interrupt.signal));
}

/** The first interrupt cancels the command, the second exits at once. */
function onInterrupt(interrupt: AbortController): void {
  process.once('SIGINT', () => {
    interrupt.abort(new CliError('CANCELLED', 'Cancelled.'));
    process.once('SIGINT', () => process.exit(EXIT.cancelled));
  });
}

/** Runs a command line without touching the process, and returns the exit code. */
export async function run(argv: readonly string[], io: Io, signal: AbortSignal): Promise<number> {
  // Until the command has parsed its options, any `--json` counts.
  const outcome: Outcome = { exitCode: EXIT.ok, json: argv.includes('--json') };
  try {
    return await untilInterrupted(dispatch(argv, io, signal, outcome), signal);
  } catch (thrown) {
    const failure = await failureOf(signal.aborted ? signal.reason : thrown);
    const text = outcome.json ? failureJson(failure) : failureText(failure, io.errorColors);
    io.stderr.write(`${text}\n`);
    return failure.exitCode;
  }
}

/** How long an interrupted command may take to clean up. */
const CLEANUP_MS = 500;

function untilInterrupted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    work.then(resolve, reject);
    signal.addEventListener('abort', () => setTimeout(() => reject(signal.reason), CLEANUP_MS), {
      once: true,
    });
  });
}

async function dispatch(
  argv: readonly string[],
  io: Io,
  signal: AbortSignal,
  outcome: Outcome,
): Promise<number> {
  const { name, rest } = readCommandLine(argv);
  const print = (text: string) => {
    io.stdout.write(`${text}\n`);
    return EXIT.ok;
  };
  if (name === undefined) {
    if (rest.includes('--version') || rest.includes('-V'))
      return dispatch(['version', ...rest.filter(isNotVersion)], io, signal, outcome);
    return print(rest.includes('--help') || rest.includes('-h') ? overview(io.colors) : startPage(io.colors));
  }
  if (name === 'help') {
    const [about] = rest.filter((word) => !word.startsWith('-'));
    return about === undefined
      ? print(overview(io.colors))
      : dispatch([about, '--help'], io, signal, outcome);
  }
  if (name === 'complete') return (await import('./complete.ts')).complete(rest, io);
  const entry = findCommand(name);
  if (entry === undefined) throw unknownCommand(name);
  const { runCommand } = await import('./run-command.ts');
  return runCommand(entry, rest, io, signal, outcome);
}

function isNotVersion(word: string): boolean {
  return word !== '--version' && word !== '-V';
}

function unknownCommand(name: string): CliError {
  const near = similar(
    name,
    COMMANDS.flatMap((entry) => [entry.name, ...(entry.aliases ?? [])]),
  );
  const hint =
    near.length > 0
      ? `Did you mean ${near.map((one) => `\`${one}\``).join(' or ')}?`
      : 'See `torpor --help`.';
  return new CliError('INVALID_ARGUMENT', `Unknown command "${name}".`, { hint });
}

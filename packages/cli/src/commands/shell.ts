/** `torpor shell`: a terminal in a sandbox. */
import type { ProcessSocket, TerminalOptions } from '@torpor/sdk';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { CliError } from '../failure.ts';
import type { Io } from '../io.ts';
import { sandboxOf } from '../sandbox-argument.ts';
import { shellLine } from '../shell-words.ts';
import { withoutUndefined } from '../without-undefined.ts';
import { write } from '../write-output.ts';

export const define: Define = (command, handler) => {
  command
    .argument('[sandbox]', 'sandbox id or name')
    .argument('[command...]', 'command for the terminal (default: a login shell)')
    .option('-w, --cwd <dir>', 'working directory (default: the home directory)')
    .option('-u, --user <user>', 'user to run as');
  addExamples(command, {
    examples: [
      ['torpor shell web', 'open a login shell'],
      ['torpor shell web htop', 'one program in a terminal'],
    ],
    seeAlso: ['exec', 'files'],
  });
  command.action(
    handler<{ cwd?: string; user?: string }>(async (cli, [sandbox, ...words], { cwd, user }) => {
      const { io } = cli;
      if (!io.stdin.isTTY || !io.stdout.isTTY) {
        throw new CliError('INVALID_ARGUMENT', 'This command needs a terminal.', {
          hint: 'Without a terminal, use `torpor exec <sandbox> <command>`.',
        });
      }
      const id = await sandboxOf(cli, sandbox);
      const wanted: TerminalOptions = withoutUndefined({
        ...sizeOf(io),
        cwd,
        user,
        command: words.length > 0 ? shellLine(words) : undefined,
      });
      const opening = (await cli.torpor()).sandboxes.terminal(id, wanted);
      return runTerminal(io, await cli.withSpinner(`Opening a terminal in ${id}…`, opening));
    }),
  );
};

/** A terminal without a known size reports zero. */
function sizeOf({ stdout: { columns, rows } }: Io): { readonly cols?: number; readonly rows?: number } {
  return columns > 0 && rows > 0 ? { cols: columns, rows } : {};
}

/** Forwards every key to the sandbox, including Ctrl-C. */
async function runTerminal(io: Io, socket: ProcessSocket): Promise<number> {
  const { stdin, stdout } = io;
  const onInput = (bytes: Buffer) => void socket.write(bytes);
  const onResize = () => {
    const { cols, rows } = sizeOf(io);
    if (cols !== undefined && rows !== undefined) socket.resize(cols, rows);
  };
  stdin.setRawMode(true);
  stdin.on('data', onInput);
  stdout.on('resize', onResize);
  try {
    for await (const event of socket) {
      if (event.type === 'output') await write(stdout, event.bytes);
      if (event.type === 'exit') return event.code;
    }
    return 0;
  } finally {
    stdin.setRawMode(false);
    stdin.off('data', onInput).pause();
    stdout.off('resize', onResize);
  }
}

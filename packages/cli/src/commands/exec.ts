/** `torpor exec`: runs a command, and passes its input, output and exit code through. */
import type { ExecSocketRequest, SandboxId } from '@torpor/protocol';
import type { ProcessEvent, ProcessSocket } from '@torpor/sdk';
import { addExamples } from '../build-command.ts';
import type { Cli, Define } from '../cli.ts';
import { CliError } from '../failure.ts';
import { parseSpan } from '../human-units.ts';
import { collectValues, parsePairs } from '../repeated-options.ts';
import { sandboxOf } from '../sandbox-argument.ts';
import { shellLine } from '../shell-words.ts';
import { withoutUndefined } from '../without-undefined.ts';
import { write } from '../write-output.ts';

interface ExecOptions {
  cwd?: string;
  env?: string[];
  user?: string;
  timeout?: number;
  background?: boolean;
}

export const define: Define = (command, handler) => {
  command
    .argument('<sandbox>', 'sandbox id or name')
    .argument(
      '<command...>',
      'command; one word is a line for the shell, several are a program and its arguments',
    )
    .option('-w, --cwd <dir>', 'working directory (default: the home directory)')
    .option('-e, --env <key=value>', 'environment variable; may be repeated', collectValues)
    .option('-u, --user <user>', 'user to run as')
    .option('--timeout <span>', 'kill the command after this time, as 90s, 5m, 2h', parseSpan)
    .option('-b, --background', 'start the command and return; it continues to run');
  addExamples(command, {
    examples: [
      ['torpor exec web npm test', 'options after the program belong to the program'],
      ["torpor exec web 'cd app && ls | wc -l'", 'one word: a line for the shell'],
      ['tar c src | torpor exec web tar x', 'stdin, stdout, stderr and exit code pass through'],
    ],
    seeAlso: ['shell', 'ps', 'files'],
  });
  command.action(
    handler<ExecOptions>(async (cli, [sandbox, ...words], options) => {
      const id = await sandboxOf(cli, sandbox);
      const env = parsePairs('--env', options.env);
      const { cwd, user, timeout } = options;
      const request = {
        command: shellLine(words),
        ...withoutUndefined({ cwd, user, env, timeoutSeconds: timeout }),
      };
      if (options.background) return runInBackground(cli, id, request);
      const socket = await (await cli.torpor()).sandboxes.execSocket(id, request);
      cli.signal.addEventListener('abort', () => socket.close(), { once: true });
      void forwardStdin(cli, socket);
      return cli.json ? collectOutput(cli, socket) : forwardOutput(cli, socket);
    }),
  );
};

async function runInBackground(cli: Cli, id: SandboxId, request: ExecSocketRequest): Promise<number> {
  const reply = await (await cli.torpor()).sandboxes.execInBackground(id, request, { signal: cli.signal });
  cli.answer(reply, () => reply.process.id ?? String(reply.process.pid));
  cli.note(
    `The command runs. \`torpor logs ${id} ${reply.process.id ?? reply.process.pid}\` shows its output.`,
  );
  return 0;
}

/** A terminal is not forwarded; `torpor shell` is for interactive programs. */
async function forwardStdin({ io: { stdin } }: Cli, socket: ProcessSocket): Promise<void> {
  try {
    if (!stdin.isTTY) for await (const chunk of stdin) await socket.write(chunk as Buffer);
  } finally {
    socket.closeStdin();
  }
}

async function forwardOutput({ io, signal }: Cli, socket: ProcessSocket): Promise<number> {
  for await (const event of socket) {
    if (event.type === 'output') await write(event.channel === 'stderr' ? io.stderr : io.stdout, event.bytes);
    if (event.type === 'exit') return event.code;
  }
  throw connectionEnded(signal);
}

async function collectOutput(cli: Cli, socket: ProcessSocket): Promise<number> {
  const output = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  let autoResumed = false;
  const text = (channel: 'stdout' | 'stderr') => Buffer.concat(output[channel]).toString('utf8');
  for await (const event of socket) {
    if (event.type === 'started') autoResumed = event.autoResumed;
    if (event.type === 'output') output[event.channel === 'stderr' ? 'stderr' : 'stdout'].push(event.bytes);
    if (event.type === 'exit') {
      cli.answer(replyOf(event, text('stdout'), text('stderr'), autoResumed), () => '');
      return event.code;
    }
  }
  throw connectionEnded(cli.signal);
}

function replyOf(end: ProcessEvent & { type: 'exit' }, stdout: string, stderr: string, autoResumed: boolean) {
  const { code, signal, durationMs } = end;
  return { exitCode: code, signal, stdout, stderr, truncated: false, durationMs, autoResumed };
}

function connectionEnded(signal: AbortSignal): unknown {
  return signal.aborted
    ? signal.reason
    : new CliError('NETWORK_ERROR', 'The connection ended before the command did.');
}

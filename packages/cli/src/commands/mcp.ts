/** `torpor mcp`: sandboxes as tools for a model, over stdio or HTTP. */
import { Option } from 'commander';
import manifest from '../../package.json' with { type: 'json' };
import { addExamples } from '../build-command.ts';
import type { Cli, Define } from '../cli.ts';
import { findConnection } from '../connection.ts';
import { CliError } from '../failure.ts';
import { parseNumber } from '../human-units.ts';
import { collectValues } from '../repeated-options.ts';

const { version } = manifest;

interface McpOptions {
  readonly template?: readonly string[];
  readonly network?: 'none' | 'internet';
  readonly readOnly?: boolean;
  readonly maxSandboxes?: number;
  readonly label: string;
  readonly allSandboxes?: boolean;
  readonly http?: string;
}

export const define: Define = (command, handler) => {
  command
    .option('--template <name>', 'template that the model may use (repeatable; default: all)', collectValues)
    .addOption(
      new Option('--network <mode>', 'network of new sandboxes (default: the default of the server)').choices(
        ['none', 'internet'],
      ),
    )
    .option('--read-only', 'only tools that change nothing')
    .option('--max-sandboxes <n>', 'how many sandboxes may exist at once', parseNumber)
    .option('--label <text>', 'label of the sandboxes; the model sees only those with it', 'default')
    .option('--all-sandboxes', 'the model sees all sandboxes of the key')
    .option('--http <host:port>', 'serve HTTP, for many clients with a key each (default: stdio)')
    .action(handler<McpOptions>(serve));
  addExamples(command, {
    examples: [
      ['claude mcp add torpor -- torpor mcp', 'add it to a client that starts programs'],
      ['torpor mcp --network none --max-sandboxes 5', 'for a model that you do not trust'],
      ['torpor mcp --http 127.0.0.1:7677', 'clients connect to http://127.0.0.1:7677/mcp with their keys'],
    ],
    seeAlso: ['keys', 'template'],
  });
};

async function serve(cli: Cli, _: readonly string[], options: McpOptions): Promise<void> {
  const {
    template = [],
    network,
    readOnly = false,
    maxSandboxes,
    label,
    allSandboxes = false,
    http,
  } = options;
  const { serveHttp, serveStdio } = await import('@torpor/mcp');
  const limits = {
    templates: template,
    network: network === undefined ? undefined : { mode: network },
    readOnly,
    maxSandboxes,
    label,
    allSandboxes,
  };
  if (http === undefined) {
    const { stdin, stdout } = cli.io;
    const torpor = await cli.torpor();
    return serveStdio({ torpor, limits, version, stdin, stdout, signal: cli.signal });
  }
  const { url } = await findConnection(cli.io, cli.options);
  const { Torpor } = await import('@torpor/sdk');
  const server = await serveHttp({
    torporFor: (apiKey) => new Torpor({ url, apiKey }),
    limits,
    version,
    ...addressOf(http),
    report: (error) => void cli.io.stderr.write(`torpor mcp: ${error.message}\n`),
  });
  cli.answer({ url: server.url }, () => `mcp ready ${server.url}`);
  await new Promise<void>((resolve) => cli.signal.addEventListener('abort', () => resolve(), { once: true }));
  await server.close();
}

function addressOf(text: string): { readonly host: string; readonly port: number } {
  const [, host, port] = /^(?:(.+):)?(\d{1,5})$/.exec(text) ?? [];
  if (port === undefined || Number(port) > 65_535)
    throw new CliError('INVALID_ARGUMENT', `--http needs host:port, not "${text}".`);
  return { host: host?.replace(/^\[|\]$/g, '') ?? '127.0.0.1', port: Number(port) };
}

/** `torpor template` with `ls`, `create` and `rm`. */
import type { CheckpointId, Service, TemplateView } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Cli, Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { CliError } from '../failure.ts';
import { parseNumber, parseSpan, relative } from '../human-units.ts';
import { collectValues, parsePairs } from '../repeated-options.ts';
import { openRoot } from '../root-archive.ts';
import { withoutUndefined } from '../without-undefined.ts';

interface CreateOptions {
  from?: string;
  start?: string;
  port?: number;
  readyPath?: string;
  readyTimeout?: number;
  env?: string[];
  description?: string;
  runtime?: string;
}

export const define: Define = (command, handler) => {
  command
    .command('ls', { isDefault: true })
    .alias('list')
    .summary('list templates')
    .action(handler((cli) => list(cli)));
  command
    .command('create')
    .summary('make one from a checkpoint, a directory or an archive')
    .argument('<name>', 'what to call it')
    .requiredOption('--from <source>', 'a checkpoint, ckpt_…; or a directory or a tar of a root, here')
    .option('--start <command>', 'a command that runs in every sandbox made from it')
    .option('--port <port>', 'where it listens: ready when it does', parseNumber)
    .option('--ready-path <path>', 'ready only when this answers below 500')
    .option('--ready-timeout <span>', 'how long that may take (default: 45s)', parseSpan)
    .option('-e, --env <key=value>', 'a variable of its environment; may be repeated', collectValues)
    .option('--description <text>', 'what people should know of it')
    .option('--runtime <name>', "what runs it (default: the server's)")
    .action(handler<CreateOptions>((cli, [name = ''], options) => create(cli, name, options)));
  command
    .command('rm')
    .alias('delete')
    .summary('delete one; sandboxes made from it go on')
    .argument('<name>', 'its name')
    .action(
      handler(async (cli, [name = '']) => {
        await (await cli.torpor()).templates.delete(name, { signal: cli.signal });
        cli.answer({ name, state: 'deleted' }, () => `${name} is deleted`);
      }),
    );
  addExamples(command, {
    examples: [
      ['torpor template create seeded --from $(torpor snapshot web)', 'others start where web is'],
      ["torpor template create app --from ./rootfs --start 'npm start' --port 3000", 'a root of your own'],
      ['torpor create --template app', 'it runs already'],
    ],
    seeAlso: ['create', 'snapshot'],
  });
};

async function list(cli: Cli): Promise<void> {
  const { templates } = await cli.torpor();
  const items: TemplateView[] = [];
  for await (const template of templates.list({ signal: cli.signal })) items.push(template);
  const rows = items.map((one) => [
    one.name,
    one.runtime,
    stateOf(one),
    one.checkpointId ?? '-',
    relative(one.createdAt, cli.io.now()),
  ]);
  cli.answer({ items, nextCursor: null }, () =>
    columns(['NAME', 'RUNTIME', 'STATE', 'CHECKPOINT', 'MADE'], rows, cli.io.colors),
  );
}

function stateOf({ builtIn, state, phase, error }: TemplateView): string {
  if (state === 'failed') return `failed: ${error?.message}`;
  return state === 'preparing' ? `preparing: ${phase ?? 'begun'}` : builtIn ? 'built in' : state;
}

async function create(cli: Cli, name: string, options: CreateOptions): Promise<void> {
  const { templates } = await cli.torpor();
  const { from = '', runtime } = options;
  const { signal } = cli;
  const definition = definitionOf(options);
  const words = `Making template ${name}…`;
  const isCheckpoint = /^ckpt_[a-z0-9]{20}$/.test(from);
  const template = await cli.withSpinner(
    words,
    isCheckpoint
      ? templates.create({ name, from: from as CheckpointId, ...definition }, { signal })
      : send(cli, from, (archive) => templates.create({ name, archive, runtime, ...definition }, { signal })),
  );
  cli.answer(template, () => template.name);
}

async function send<T>(
  cli: Cli,
  path: string,
  work: (archive: Awaited<ReturnType<typeof openRoot>>['body']) => Promise<T>,
): Promise<T> {
  const root = await openRoot(path);
  try {
    return await work(root.body);
  } catch (thrown) {
    if (!cli.signal.aborted && root.failure() !== undefined) throw root.failure();
    throw thrown;
  } finally {
    root.close();
  }
}

function definitionOf({ description, env, ...options }: CreateOptions) {
  const service = serviceOf(options);
  return withoutUndefined({
    description,
    env: parsePairs('--env', env),
    services: service === undefined ? undefined : [service],
  });
}

function serviceOf({ start, port, readyPath, readyTimeout }: CreateOptions): Service | undefined {
  if (start === undefined) {
    if (port === undefined && readyPath === undefined && readyTimeout === undefined) return undefined;
    throw new CliError('INVALID_ARGUMENT', '--port and --ready-… say something about --start.');
  }
  const ready = withoutUndefined({ path: readyPath, timeoutSeconds: readyTimeout });
  if (port === undefined && Object.keys(ready).length > 0) {
    throw new CliError('INVALID_ARGUMENT', '--ready-… needs the --port to ask.');
  }
  return {
    name: 'start',
    command: start,
    ...withoutUndefined({ port }),
    ...(Object.keys(ready).length === 0 ? {} : { ready }),
  };
}

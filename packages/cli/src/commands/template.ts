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
    .summary('create a template from a checkpoint, a directory or an archive')
    .argument('<name>', 'name of the template')
    .requiredOption(
      '--from <source>',
      'checkpoint id, ckpt_…; or a local directory or tar file with a root filesystem',
    )
    .option('--start <command>', 'command that runs in every sandbox of this template')
    .option('--port <port>', 'port of the command; the template is ready when it listens', parseNumber)
    .option('--ready-path <path>', 'path that must answer with a status below 500')
    .option('--ready-timeout <span>', 'how long the start may take (default: 45s)', parseSpan)
    .option('-e, --env <key=value>', 'environment variable; may be repeated', collectValues)
    .option('--description <text>', 'description of the template')
    .option('--runtime <name>', "runtime (default: the server's)")
    .action(handler<CreateOptions>((cli, [name = ''], options) => create(cli, name, options)));
  command
    .command('rm')
    .alias('delete')
    .summary('delete a template; its sandboxes do not change')
    .argument('<name>', 'name of the template')
    .action(
      handler(async (cli, [name = '']) => {
        await (await cli.torpor()).templates.delete(name, { signal: cli.signal });
        cli.answer({ name, state: 'deleted' }, () => `${name} is deleted`);
      }),
    );
  addExamples(command, {
    examples: [
      ['torpor template create seeded --from $(torpor snapshot web)', 'from the current state of web'],
      [
        "torpor template create app --from ./rootfs --start 'npm start' --port 3000",
        'from a local root filesystem',
      ],
      ['torpor create --template app', 'npm start already runs in it'],
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
    columns(['NAME', 'RUNTIME', 'STATE', 'CHECKPOINT', 'CREATED'], rows, cli.io.colors),
  );
}

function stateOf({ builtIn, state, phase, error }: TemplateView): string {
  if (state === 'failed') return `failed: ${error?.message}`;
  return state === 'preparing' ? `preparing: ${phase ?? 'started'}` : builtIn ? 'built in' : state;
}

async function create(cli: Cli, name: string, options: CreateOptions): Promise<void> {
  const { templates } = await cli.torpor();
  const { from = '', runtime } = options;
  const { signal } = cli;
  const definition = definitionOf(options);
  const label = `Creating template ${name}…`;
  const isCheckpoint = /^ckpt_[a-z0-9]{20}$/.test(from);
  const template = await cli.withSpinner(
    label,
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
    throw new CliError('INVALID_ARGUMENT', '--port and --ready-… need --start.');
  }
  const ready = withoutUndefined({ path: readyPath, timeoutSeconds: readyTimeout });
  if (port === undefined && Object.keys(ready).length > 0) {
    throw new CliError('INVALID_ARGUMENT', '--ready-… needs --port.');
  }
  return {
    name: 'start',
    command: start,
    ...withoutUndefined({ port }),
    ...(Object.keys(ready).length === 0 ? {} : { ready }),
  };
}

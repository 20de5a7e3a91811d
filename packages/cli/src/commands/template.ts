/** `torpor template` with `ls`, `create`, `build`, `rebuild` and `rm`. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { CheckpointId, Service, TemplateView } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Cli, Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { CliError } from '../failure.ts';
import { parseNumber, parseSpan, relative } from '../human-units.ts';
import { registryCredentials } from '../registry-credentials.ts';
import { collectValues, parsePairs } from '../repeated-options.ts';
import {
  addResourceOptions,
  LIMITS_OF_TEMPLATE,
  type ResourceOptions,
  resourcesOf,
} from '../resource-options.ts';
import { openRoot } from '../root-archive.ts';
import { withTemplateProgress } from '../template-progress.ts';
import { withoutUndefined } from '../without-undefined.ts';
import { defineBuild } from './template-build.ts';

interface CreateOptions extends ResourceOptions {
  from?: string;
  image?: string;
  ociArchive?: string;
  dockerArchive?: string;
  registryUser?: string;
  registryPasswordStdin?: boolean;
  entrypoint?: boolean;
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
  const creating = command
    .command('create')
    .summary('create a template from an image, a checkpoint, a directory or an archive')
    .argument('<name>', 'name of the template')
    .option(
      '--from <source>',
      'checkpoint id, ckpt_…; or a local directory or tar file with a root filesystem',
    )
    .option('--image <reference>', 'image in a registry, name:tag or name@sha256:…; the server fetches it')
    .option('--oci-archive <file>', 'local image, as skopeo and buildah write it')
    .option('--docker-archive <file>', 'local image, as docker save writes it')
    .option('--registry-user <name>', "user at the registry (default: the server's docker login)")
    .option('--registry-password-stdin', 'read the password of the registry from stdin')
    .option('--entrypoint', 'run ENTRYPOINT and CMD of the image in every sandbox of this template')
    .option('--start <command>', 'command that runs in every sandbox of this template')
    .option('--port <port>', 'port of the command; the template is ready when it listens', parseNumber)
    .option('--ready-path <path>', 'path that must answer with a status below 500')
    .option('--ready-timeout <span>', 'how long the start may take (default: 45s)', parseSpan)
    .option('-e, --env <key=value>', 'environment variable; may be repeated', collectValues)
    .option('--description <text>', 'description of the template')
    .option('--runtime <name>', "runtime (default: the server's)");
  addResourceOptions(creating, LIMITS_OF_TEMPLATE).action(
    handler<CreateOptions>((cli, [name = ''], options) => create(cli, name, options)),
  );
  defineBuild(command, handler);
  command
    .command('rebuild')
    .summary('make the root of base again, with the updates of its packages')
    .argument('<name>', 'name of the built-in template')
    .option('--wait', 'wait until new sandboxes use it')
    .action(handler<{ wait?: boolean }>((cli, [name = ''], options) => rebuild(cli, name, options)));
  for (const [verb, isPublic, summary] of [
    ['publish', true, 'let other organisations create sandboxes from it, as organisation/name'],
    ['unpublish', false, 'end that; sandboxes that exist do not change'],
  ] as const)
    command
      .command(verb)
      .summary(summary)
      .argument('<name>', 'name of the template')
      .action(
        handler(async (cli, [name = '']) => {
          const { templates } = await cli.torpor();
          const changed = await templates[verb](name, { signal: cli.signal });
          cli.answer(changed, () => `${name} is ${isPublic ? 'public' : 'private'}`);
        }),
      );
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
      ['torpor template create node --image node:24-slim', 'an image of Docker Hub'],
      [
        'torpor template create web --image ghcr.io/acme/web:1 --registry-user me --registry-password-stdin < token',
        'a private image',
      ],
      [
        "torpor template build . --name web --start-cmd 'npm start' --port 3000",
        'from a Dockerfile; unchanged steps are not run again',
      ],
      ['torpor template create base --from ./rootfs', 'a root of your own instead of the built-in one'],
      ['torpor template rebuild base', 'security updates for new sandboxes'],
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
    limitsOf(one),
    one.checkpointId ?? '-',
    relative(one.createdAt, cli.io.now()),
  ]);
  cli.answer({ items, nextCursor: null }, () =>
    columns(['NAME', 'RUNTIME', 'STATE', 'LIMITS', 'CHECKPOINT', 'CREATED'], rows, cli.io.colors),
  );
}

function limitsOf({ resources: { memoryMb, cpus } }: TemplateView): string {
  const limits = [
    memoryMb === undefined ? [] : `${memoryMb} MB`,
    cpus === undefined ? [] : `${cpus} cpus`,
  ].flat();
  return limits.length === 0 ? '-' : limits.join(', ');
}

function stateOf({ builtIn, public: isPublished, state, phase, error, root }: TemplateView): string {
  if (state === 'failed') return `failed: ${error?.message}`;
  if (state === 'preparing') return `preparing: ${phase ?? 'started'}`;
  const kind = isPublished
    ? `${state}, public`
    : !builtIn
      ? state
      : root?.kind === 'host'
        ? 'built in, a view of the host'
        : 'built in';
  return phase === null ? kind : `${kind} (${phase})`;
}

const POLL_EVERY_MS = 1_000;

async function rebuild(cli: Cli, name: string, { wait = false }: { wait?: boolean }): Promise<void> {
  const { templates } = await cli.torpor();
  const { signal } = cli;
  const before = await templates.rebuild(name, { signal });
  if (!wait) {
    cli.answer(before, () => `${name} is being made again; torpor template ls shows the progress`);
    return;
  }
  const made = await cli.withSpinner(`Making ${name} again…`, untilIdle());
  const isNew = made.checkpointId !== before.checkpointId;
  cli.answer(made, () => (isNew ? `${name} is new` : `${name} stays: there are no updates, or it failed`));

  async function untilIdle(): Promise<TemplateView> {
    let idle = 0;
    for (;;) {
      await sleep(POLL_EVERY_MS, undefined, { signal });
      const now = await templates.get(name, { signal });
      // Between the root and the checkpoint there is a moment without a phase.
      idle = now.phase === null ? idle + 1 : 0;
      if (idle >= 3 || now.checkpointId !== before.checkpointId) return now;
    }
  }
}

async function create(cli: Cli, name: string, options: CreateOptions): Promise<void> {
  const { templates } = await cli.torpor();
  const { signal } = cli;
  const source = sourceOf(options);
  const common = { name, ...definitionOf(options) };
  const { runtime, entrypoint } = options;
  const begin = async (): Promise<TemplateView> => {
    switch (source.is) {
      case 'checkpoint':
        return templates.create({ ...common, from: source.id }, { signal });
      case 'image': {
        const credentials = await registryCredentials(cli, options);
        const { reference: image } = source;
        const rest = withoutUndefined({ registryCredentials: credentials, entrypoint, runtime });
        return templates.create({ ...common, image, ...rest }, { signal });
      }
      case 'archive': {
        const { path, format } = source;
        const request = { ...common, runtime, ...withoutUndefined({ format, entrypoint }) };
        return send(cli, path, (archive) => templates.create({ ...request, archive }, { signal }));
      }
    }
  };
  const template = await withTemplateProgress(cli, name, `Creating template ${name}…`, begin());
  cli.answer(template, () => template.name);
}

type Source =
  | { readonly is: 'checkpoint'; readonly id: CheckpointId }
  | { readonly is: 'image'; readonly reference: string }
  | { readonly is: 'archive'; readonly path: string; readonly format?: 'oci' | 'docker' };

function sourceOf({ from, image, ociArchive, dockerArchive, ...options }: CreateOptions): Source {
  if ([from, image, ociArchive, dockerArchive].filter((one) => one !== undefined).length !== 1)
    throw new CliError(
      'INVALID_ARGUMENT',
      'Give one of --from, --image, --oci-archive and --docker-archive.',
    );
  if (options.registryUser !== undefined && image === undefined)
    throw new CliError('INVALID_ARGUMENT', '--registry-user needs --image.');
  if (options.entrypoint === true && from !== undefined)
    throw new CliError('INVALID_ARGUMENT', '--entrypoint needs an image. Use --start instead.');
  if (image !== undefined) return { is: 'image', reference: image };
  if (ociArchive !== undefined) return { is: 'archive', path: ociArchive, format: 'oci' };
  if (dockerArchive !== undefined) return { is: 'archive', path: dockerArchive, format: 'docker' };
  if (/^ckpt_[a-z0-9]{20}$/.test(from ?? '')) return { is: 'checkpoint', id: from as CheckpointId };
  return { is: 'archive', path: from ?? '' };
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
    resources: resourcesOf(options),
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

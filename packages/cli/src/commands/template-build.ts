/** `torpor template build`: a template from a Dockerfile. */
import { basename, join, resolve } from 'node:path';
import { type Service, templateNameSchema } from '@torpor/protocol';
import type { Cli, Define } from '../cli.ts';
import { CliError } from '../failure.ts';
import { parseNumber, parseSpan } from '../human-units.ts';
import { registryCredentials } from '../registry-credentials.ts';
import { collectValues, parsePairs } from '../repeated-options.ts';
import {
  addResourceOptions,
  LIMITS_OF_TEMPLATE,
  type ResourceOptions,
  resourcesOf,
} from '../resource-options.ts';
import { withTemplateProgress } from '../template-progress.ts';
import { withoutUndefined } from '../without-undefined.ts';

interface BuildOptions extends ResourceOptions {
  name?: string;
  file?: string;
  buildArg?: string[];
  target?: string;
  startCmd?: string;
  port?: number;
  ready?: string;
  readyTimeout?: number;
  entrypoint?: boolean;
  cache?: boolean;
  registryUser?: string;
  registryPasswordStdin?: boolean;
}

export const defineBuild: Define = (command, handler) => {
  const build = command
    .command('build')
    .summary('build a template from a Dockerfile, in sandboxes')
    .argument('<directory>', 'build context')
    .option('--name <name>', 'name of the template (default: that of the directory)')
    .option('-f, --file <file>', 'Dockerfile (default: Dockerfile in the directory)')
    .option('--build-arg <key=value>', 'value of an ARG; may be repeated', collectValues)
    .option('--target <stage>', 'stage that becomes the template (default: the last one)')
    .option('--start-cmd <command>', 'command that runs in every sandbox of this template')
    .option('--entrypoint', 'run ENTRYPOINT and CMD in every sandbox of this template')
    .option('--port <port>', 'port of the command; the template is ready when it listens', parseNumber)
    .option('--ready <path>', 'path that must answer with a status below 500')
    .option('--ready-timeout <span>', 'how long the start may take (default: 45s)', parseSpan)
    .option('--no-cache', 'run all steps again')
    .option('--registry-user <name>', "user at the registry of FROM (default: the server's docker login)")
    .option('--registry-password-stdin', 'read the password of the registry from stdin');
  addResourceOptions(build, LIMITS_OF_TEMPLATE).action(
    handler<BuildOptions>((cli, [directory = ''], options) => runBuild(cli, directory, options)),
  );
};

async function runBuild(cli: Cli, directory: string, options: BuildOptions): Promise<void> {
  const { buildTemplate, BuildFailure } = await import('@torpor/dockerfile');
  const name = options.name ?? basename(resolve(directory)).toLowerCase();
  if (!templateNameSchema.safeParse(name).success)
    throw new CliError(
      'INVALID_ARGUMENT',
      `"${name}" cannot be the name of a template. Give one with --name.`,
    );
  const { stderr } = cli.io;
  try {
    const template = await buildTemplate({
      torpor: await cli.torpor(),
      name,
      directory,
      dockerfile: options.file ?? join(directory, 'Dockerfile'),
      buildArgs: new Map(Object.entries(parsePairs('--build-arg', options.buildArg) ?? {})),
      target: options.target,
      start: serviceOf(options),
      entrypoint: options.entrypoint ?? false,
      useCache: options.cache ?? true,
      resources: resourcesOf(options) ?? {},
      registryCredentials: await registryCredentials(cli, options),
      signal: cli.signal,
      showProgress: (template, work) => withTemplateProgress(cli, template, 'Fetching…', work),
      say: (line) => void stderr.write(`${cli.io.errorColors.cyan('==>')} ${line}\n`),
      output: (data) => void stderr.write(data),
    });
    cli.answer(template, () => template.name);
  } catch (thrown) {
    if (!(thrown instanceof BuildFailure)) throw thrown;
    const { line, sandbox } = thrown;
    throw new CliError('BUILD_FAILED', thrown.message, {
      details: { line, sandbox },
      ...(sandbox === null
        ? {}
        : { hint: `Look at it: torpor shell ${sandbox}. Then remove it: torpor kill ${sandbox}.` }),
    });
  }
}

function serviceOf({ startCmd, entrypoint, port, ready, readyTimeout }: BuildOptions): Service | undefined {
  if (startCmd === undefined) {
    if (port === undefined && ready === undefined && readyTimeout === undefined) return undefined;
    throw new CliError('INVALID_ARGUMENT', '--port and --ready… need --start-cmd.');
  }
  if (entrypoint === true)
    throw new CliError('INVALID_ARGUMENT', 'Give --start-cmd or --entrypoint, not both.');
  const check = withoutUndefined({ path: ready, timeoutSeconds: readyTimeout });
  if (port === undefined && Object.keys(check).length > 0)
    throw new CliError('INVALID_ARGUMENT', '--ready… needs --port.');
  return {
    name: 'start',
    command: startCmd,
    ...withoutUndefined({ port }),
    ...(Object.keys(check).length === 0 ? {} : { ready: check }),
  };
}

/** `torpor create` */
import type { CreateRequest, Service } from '@torpor/protocol';
import { Option } from 'commander';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { CliError } from '../failure.ts';
import { parseRetention, parseSpan } from '../human-units.ts';
import { collectValues, parsePairs } from '../repeated-options.ts';
import { addResourceOptions, type ResourceOptions, resourcesOf } from '../resource-options.ts';
import { sandboxDetails } from '../sandbox-text.ts';
import { withoutUndefined } from '../without-undefined.ts';

interface CreateOptions extends ResourceOptions {
  template?: string;
  from?: CreateRequest['from'];
  name?: string;
  metadata?: string[];
  env?: string[];
  service?: string[];
  timeout?: number;
  onTimeout?: 'pause' | 'kill';
  deletePausedAfter?: CreateRequest['deletePausedAfterSeconds'];
  checkpointEvery?: number;
  idle?: number;
  onIdle?: CreateRequest['onIdle'];
  autoResume: boolean;
  fallback?: ('files' | 'previous' | 'template')[];
  preview?: 'public' | 'private';
  requestHost?: string;
  network?: 'internet' | 'none';
  secret?: readonly string[];
  runtime?: string;
}

export const define: Define = (command, handler) => {
  command
    .option('-n, --name <name>', 'name of the sandbox')
    .option('-t, --template <template>', 'template (default: base)')
    .option('--from <checkpoint>', 'checkpoint to start from, instead of a template')
    .option('-e, --env <key=value>', 'environment variable; may be repeated', collectValues)
    .option('-m, --metadata <key=value>', 'metadata; may be repeated', collectValues)
    .option('-s, --service <name[:port]=command>', 'service to run in it; may be repeated', collectValues)
    .option('--timeout <span>', 'how long it may run, as 90s, 5m, 2h (default: no limit)', parseSpan)
    .addOption(
      new Option('--on-timeout <what>', 'action at the timeout (default: pause)').choices(['pause', 'kill']),
    )
    .option('--idle <span>', 'how long it may be idle (default: 5m)', parseSpan)
    .addOption(
      new Option(
        '--on-idle <what>',
        'action when idle (default: pause, or keep where the runtime cannot)',
      ).choices(['pause', 'stop', 'kill', 'keep']),
    )
    .option(
      '--delete-paused-after <span>',
      'how long it is kept while paused and unused, as 12h, 30d, or "never" (default: of the organisation)',
      parseRetention,
    )
    .option(
      '--checkpoint-every <span>',
      'seal it this often while it runs, as 5m (default: only at a pause)',
      parseSpan,
    )
    .option('--no-auto-resume', 'wake it only with resume, not by a request')
    .addOption(
      new Option('--fallback <sources...>', 'fallbacks that a resume may use (default: files)').choices([
        'files',
        'previous',
        'template',
      ]),
    )
    .addOption(
      new Option('--preview <who>', 'access to its ports (default: public)').choices(['public', 'private']),
    )
    .option(
      '--request-host <host>',
      'the Host that its programs get, such as localhost (default: of the preview)',
    )
    .addOption(
      new Option('--network <mode>', 'what it may reach (default: internet)').choices(['internet', 'none']),
    )
    .option('--secret <name>', 'secret that it uses and never sees (repeatable)', collectValues)
    .option('--runtime <name>', "runtime (default: the server's)");
  addResourceOptions(command);
  addExamples(command, {
    examples: [
      ['torpor create --name web', 'a sandbox called web'],
      ["torpor create -s 'app:3000=npm run dev'", 'with a dev server on port 3000'],
      ['id=$(torpor create)', 'in a script: prints the id'],
    ],
    seeAlso: ['exec', 'shell', 'ls', 'kill'],
  });
  command.action(
    handler<CreateOptions>(async (cli, _, options) => {
      const request = requestOf(options);
      const torpor = await cli.torpor();
      const sandbox = await cli.withSpinner(
        'Creating a sandbox…',
        torpor.sandboxes.create(request, { signal: cli.signal }),
      );
      cli.answer(sandbox, () => sandbox.id);
      cli.note(sandboxDetails(sandbox, cli.io.now(), cli.io.errorColors));
    }),
  );
};

function requestOf(options: CreateOptions): CreateRequest {
  const { network, secret, env, metadata, service } = options;
  return withoutUndefined({
    name: options.name,
    template: options.template,
    from: options.from,
    runtime: options.runtime,
    timeoutSeconds: options.timeout,
    onTimeout: options.onTimeout,
    deletePausedAfterSeconds: options.deletePausedAfter,
    idleSeconds: options.idle,
    checkpointEverySeconds: options.checkpointEvery,
    onIdle: options.onIdle,
    autoResume: options.autoResume ? undefined : false,
    fallback: options.fallback,
    preview: options.preview,
    requestHost: options.requestHost,
    env: parsePairs('--env', env),
    metadata: parsePairs('--metadata', metadata),
    services: service?.map(serviceOf),
    network:
      network === undefined && secret === undefined
        ? undefined
        : withoutUndefined({ mode: network, secrets: secret }),
    resources: resourcesOf(options),
  }) as CreateRequest;
}

/** `app=npm start`, or with its port, `app:3000=npm start`. */
function serviceOf(text: string): Service {
  const [, name, port, command] = /^([^:=]+)(?::(\d+))?=(.+)$/s.exec(text) ?? [];
  if (name === undefined || command === undefined) {
    throw new CliError('INVALID_ARGUMENT', `--service needs name[:port]=command, not "${text}".`);
  }
  return { name, command, ...(port === undefined ? {} : { port: Number(port) }) };
}

/** `torpor up`: runs the server in this process. The server handles signals until it ends. */
import { Option } from 'commander';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';

interface UpOptions {
  apiKey?: string;
  tls?: boolean;
  drainOnStop?: boolean;
  set?: string[];
  [flag: string]: string | boolean | string[] | undefined;
}

const FLAGS = [
  ['port', 'n', 'port; 0 finds a free one (default: 7676)'],
  ['host', 'host', 'address to listen on (default: 127.0.0.1)'],
  ['data-dir', 'dir', 'data directory (default: ~/.torpor)'],
  [
    'runtime',
    'names',
    'runtimes, the default one first: auto, gvisor, process, e2b, kubernetes, agent-sandbox (default: auto)',
  ],
  ['database', 'url', 'PostgreSQL database, for several servers (default: embedded)'],
  ['store', 'url', 'store outside this machine, s3://bucket/prefix or file:///directory (default: none)'],
  ['data-key-file', 'file', 'data keys of the store (default: data-key in the data directory)'],
  ['durability', 'durability', 'when a pause is answered: sealed or replicated (default: sealed)'],
  ['node', 'name', 'name of this node, when several machines share the database and the store'],
  ['advertise', 'url', 'address by which the other nodes reach this server; with --node'],
  ['node-memory-mb', 'n', 'memory in MB for all sandboxes of this node (default: that of the machine)'],
  ['domain', 'domain', 'domain of previews (default: sbx.localhost:<port>)'],
  ['tls-cert', 'file', 'certificate of a public authority with its chain, as PEM; with --tls-key'],
  ['tls-key', 'file', 'private key of the certificate'],
  ['webhook-networks', 'networks', 'private networks that webhooks may be sent to, separated by commas'],
  ['registry-networks', 'networks', 'private networks that images may be fetched from, separated by commas'],
  ['ahead', 'number', 'number of pre-created containers, some 25 MB each (default: 2 to 16, by memory)'],
  ['runner', 'name', 'default runner of builds: starter, command, openai, none (default: starter)'],
  ['allowed-hosts', 'names', 'further host names of the API, separated by commas'],
  ['log-level', 'level', 'log level: debug, info, warn, error or silent (default: info)'],
] as const;

export const define: Define = (command, handler) => {
  for (const [name, value, what] of FLAGS) command.addOption(new Option(`--${name} <${value}>`, what));
  command.addOption(
    new Option('--set <name=value>', 'setting, such as engine.callMs=90s; may be repeated').argParser(
      (value, before: string[] = []) => [...before, value],
    ),
  );
  command.option('--drain-on-stop', 'move sandboxes to other nodes before the server stops');
  command.option('--tls', 'serve HTTPS on the same port').allowUnknownOption().argument('[flags...]');
  command.usage('[options]');
  addExamples(command, {
    examples: [
      ['torpor up', 'listen on http://127.0.0.1:7676'],
      ['torpor up --port 0 --data-dir ./data', 'a second server with its own data'],
      ['torpor up --set engine.defaultIdleMs=10m', 'pause sandboxes after ten idle minutes'],
    ],
    seeAlso: ['doctor', 'create'],
  });
  command.action(
    handler<UpOptions>(async (cli, unknown, options) => {
      const known = FLAGS.flatMap(([name]) => {
        const value = options[camel(name)];
        return typeof value === 'string' ? [`--${name}`, value] : [];
      });
      const env =
        options.apiKey === undefined ? cli.io.env : { ...cli.io.env, TORPOR_API_KEY: options.apiKey };
      const { serve } = await import('@torpor/server');
      // The server may know flags that the CLI does not list.
      const switches = [
        ...(options.tls ? ['--tls'] : []),
        ...(options.drainOnStop ? ['--drain-on-stop'] : []),
      ];
      const set = (options.set ?? []).map((one) => `--set=${one}`);
      return serve([...known, ...set, ...switches, ...unknown], env);
    }),
  );
};

function camel(flag: string): string {
  return flag.replaceAll(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

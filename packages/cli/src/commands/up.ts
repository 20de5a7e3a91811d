/** `torpor up`: the server, in this process. It has the say over signals until it ends. */
import { Option } from 'commander';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';

interface UpOptions {
  apiKey?: string;
  tls?: boolean;
  set?: string[];
  [flag: string]: string | boolean | string[] | undefined;
}

const FLAGS = [
  ['port', 'n', 'where to listen; 0 finds a free one (default: 7676)'],
  ['host', 'host', 'on which address (default: 127.0.0.1)'],
  ['data-dir', 'dir', 'where everything is kept (default: ~/.torpor)'],
  ['runtime', 'name', 'what runs sandboxes: auto, gvisor, process, e2b (default: auto)'],
  ['database', 'url', 'PostgreSQL, when several servers share the truth (default: embedded)'],
  ['domain', 'domain', 'under which ports are served (default: sbx.localhost:<port>)'],
  [
    'ahead',
    'number',
    'containers made before they are asked for, some 25 MB each (default: 2 to 16, by memory)',
  ],
  ['runner', 'name', 'what writes builds that name none: starter, command, openai, none (default: starter)'],
  ['allowed-hosts', 'names', 'further names, separated by commas, that the API may be called by'],
  ['log-level', 'level', 'debug, info, warn, error or silent (default: info)'],
] as const;

export const define: Define = (command, handler) => {
  for (const [name, value, what] of FLAGS) command.addOption(new Option(`--${name} <${value}>`, what));
  command.addOption(
    new Option('--set <name=value>', 'a setting, such as engine.callMs=90s; may be repeated').argParser(
      (value, before: string[] = []) => [...before, value],
    ),
  );
  command.option('--tls', 'speak https on the same port').allowUnknownOption().argument('[flags...]');
  command.usage('[options]');
  addExamples(command, {
    examples: [
      ['torpor up', 'on http://127.0.0.1:7676'],
      ['torpor up --port 0 --data-dir ./data', 'a second one, with its own data'],
      ['torpor up --set engine.defaultIdleMs=10m', 'sandboxes pause after ten idle minutes'],
    ],
    seeAlso: ['doctor', 'create'],
  });
  command.action(
    handler<UpOptions>(async (cli, unknown, options) => {
      const told = FLAGS.flatMap(([name]) => {
        const value = options[camel(name)];
        return typeof value === 'string' ? [`--${name}`, value] : [];
      });
      const env =
        options.apiKey === undefined ? cli.io.env : { ...cli.io.env, TORPOR_API_KEY: options.apiKey };
      const { serve } = await import('@torpor/server');
      // What this does not know may be known there.
      const set = (options.set ?? []).map((one) => `--set=${one}`);
      return serve([...told, ...set, ...(options.tls ? ['--tls'] : []), ...unknown], env);
    }),
  );
};

function camel(flag: string): string {
  return flag.replaceAll(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

/** `torpor network` */
import type { Network } from '@torpor/protocol';
import { Option } from 'commander';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { sandboxOf } from '../sandbox-argument.ts';

interface Options {
  mode?: 'internet' | 'none';
  allow?: string[];
  deny?: string[];
}

export const define: Define = (command, handler) => {
  command
    .argument('<sandbox>', 'sandbox id or name')
    .addOption(new Option('--mode <mode>', 'what is allowed without a rule').choices(['internet', 'none']))
    .option(
      '--allow <rules...>',
      'names ("*.example.com" for subdomains), addresses or networks; each with an optional ":port"',
    )
    .option('--deny <rules...>', 'same form; a denial wins');
  addExamples(command, {
    examples: [
      ['torpor network web', 'show the rules'],
      ['torpor network web --mode none --allow registry.npmjs.org', 'allow only this name'],
      ['torpor network web --mode internet', 'allow all but the host, private networks and other sandboxes'],
    ],
    seeAlso: ['create', 'events'],
  });
  command.action(
    handler<Options>(async (cli, [given], { mode, allow, deny }) => {
      const id = await sandboxOf(cli, given);
      const { sandboxes } = await cli.torpor();
      const network: Network = { mode, allow, deny };
      const isQuestion = mode === undefined && allow === undefined && deny === undefined;
      const sandbox = isQuestion
        ? await sandboxes.get(id, { signal: cli.signal })
        : await sandboxes.setNetwork(id, network, { signal: cli.signal });
      cli.answer(sandbox, () => networkText(sandbox.network));
    }),
  );
};

function networkText({ mode, allow = [], deny = [] }: Network): string {
  const rules = [
    mode ?? (allow.length > 0 ? 'none' : 'internet'),
    ...allow.map((rule) => `allow ${rule}`),
    ...deny.map((rule) => `deny ${rule}`),
  ];
  return rules.join('\n');
}

/** `torpor network` */
import { type Network, nameOfUse } from '@torpor/protocol';
import { Option } from 'commander';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { sandboxOf } from '../sandbox-argument.ts';

interface Options {
  mode?: 'internet' | 'none';
  allow?: string[];
  deny?: string[];
  /** False: `--no-secrets`. */
  secrets?: string[] | false;
}

export const define: Define = (command, handler) => {
  command
    .argument('<sandbox>', 'sandbox id or name')
    .addOption(new Option('--mode <mode>', 'what is allowed without a rule').choices(['internet', 'none']))
    .option(
      '--allow <rules...>',
      'names ("*.example.com" for subdomains), addresses or networks; each with an optional ":port"',
    )
    .option('--deny <rules...>', 'same form; a denial wins')
    .option('--secrets <names...>', 'secrets that it uses and never sees (default: those that it has)')
    .option('--no-secrets', 'use no secrets any more');
  addExamples(command, {
    examples: [
      ['torpor network web', 'show the rules'],
      ['torpor network web --mode none --allow registry.npmjs.org', 'allow only this name'],
      ['torpor network web --secrets OPENAI_API_KEY', 'let it use a secret'],
      ['torpor network web --mode internet', 'allow all but the host, private networks and other sandboxes'],
    ],
    seeAlso: ['create', 'events'],
  });
  command.action(
    handler<Options>(async (cli, [given], { mode, allow, deny, secrets }) => {
      const id = await sandboxOf(cli, given);
      const { sandboxes } = await cli.torpor();
      const now = await sandboxes.get(id, { signal: cli.signal });
      const rules = { mode, allow, deny };
      const isForRules = Object.values(rules).some((given) => given !== undefined);
      const network: Network = {
        ...(isForRules ? rules : now.network),
        secrets: secrets === false ? [] : (secrets ?? now.network.secrets),
      };
      const isQuestion = !isForRules && secrets === undefined;
      const sandbox = isQuestion ? now : await sandboxes.setNetwork(id, network, { signal: cli.signal });
      cli.answer(sandbox, () => networkText(sandbox.network));
    }),
  );
};

function networkText({ mode, allow = [], deny = [], secrets = [] }: Network): string {
  const rules = [
    mode ?? (allow.length > 0 ? 'none' : 'internet'),
    ...allow.map((rule) => `allow ${rule}`),
    ...deny.map((rule) => `deny ${rule}`),
    ...secrets.map((use) => `secret ${nameOfUse(use)}`),
  ];
  return rules.join('\n');
}

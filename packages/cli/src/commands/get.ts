/** `torpor get` */
import { teach } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { anySandboxOf } from '../sandbox-argument.ts';
import { sandboxFacts } from '../sandbox-text.ts';

export const define: Define = (command, act) => {
  command.argument('[sandbox]', 'its id or name');
  teach(command, {
    examples: [
      ['torpor get web', 'state, and how it is known'],
      ['torpor get web --json | jq -r .state', 'one field, for a script'],
    ],
    seeAlso: ['ls', 'events', 'checkpoints'],
  });
  command.action(
    act(async (cli, [given]) => {
      const id = await anySandboxOf(cli, given);
      const sandbox = await (await cli.torpor()).sandboxes.get(id, { signal: cli.signal });
      cli.answer(sandbox, () => sandboxFacts(sandbox, cli.io.now(), cli.io.colors));
    }),
  );
};

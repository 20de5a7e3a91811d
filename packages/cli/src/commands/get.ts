/** `torpor get` */
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { anySandboxOf } from '../sandbox-argument.ts';
import { sandboxDetails } from '../sandbox-text.ts';

export const define: Define = (command, handler) => {
  command.argument('[sandbox]', 'sandbox id or name');
  addExamples(command, {
    examples: [
      ['torpor get web', 'state and settings of web'],
      ['torpor get web --json | jq -r .state', 'one field, in a script'],
    ],
    seeAlso: ['ls', 'events', 'checkpoints'],
  });
  command.action(
    handler(async (cli, [given]) => {
      const id = await anySandboxOf(cli, given);
      const sandbox = await (await cli.torpor()).sandboxes.get(id, { signal: cli.signal });
      cli.answer(sandbox, () => sandboxDetails(sandbox, cli.io.now(), cli.io.colors));
    }),
  );
};

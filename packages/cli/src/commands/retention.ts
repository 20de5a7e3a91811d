/** `torpor retention` */
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { parseRetention, relative, retentionText } from '../human-units.ts';
import { sandboxOf } from '../sandbox-argument.ts';

export const define: Define = (command, handler) => {
  command
    .argument('<sandbox>', 'sandbox id or name')
    .argument('<span>', 'as 12h, 30d; "never", or "default" for the setting of its organisation');
  addExamples(command, {
    examples: [
      ['torpor retention web 30d', 'delete it after 30 days paused, announced a day before'],
      ['torpor retention web never', 'keep it forever'],
    ],
    seeAlso: ['get', 'create', 'org'],
  });
  command.action(
    handler(async (cli, [given, span = '']) => {
      const retention = parseRetention(span);
      const id = await sandboxOf(cli, given);
      const torpor = await cli.torpor();
      const sandbox = await torpor.sandboxes.setRetention(id, retention, { signal: cli.signal });
      const { deletePausedAfterSeconds, deletesAt } = sandbox;
      const when = deletesAt === null ? '' : `; it is deleted ${relative(deletesAt, cli.io.now())}`;
      cli.answer(
        sandbox,
        () => `${id} is kept while paused: ${retentionText(deletePausedAfterSeconds)}${when}`,
      );
    }),
  );
};

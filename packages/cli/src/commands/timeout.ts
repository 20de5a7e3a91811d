/** `torpor timeout` */
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { parseSpan, relative } from '../human-units.ts';
import { sandboxOf } from '../sandbox-argument.ts';

export const define: Define = (command, handler) => {
  command
    .argument('<sandbox>', 'sandbox id or name')
    .argument('<span>', 'time from now, as 90s, 5m, 2h; or "none"');
  addExamples(command, {
    examples: [
      ['torpor timeout web 2h', 'two hours from now, and after each resume'],
      ['torpor timeout web none', 'no limit'],
    ],
    seeAlso: ['get', 'create'],
  });
  command.action(
    handler(async (cli, [given, span = '']) => {
      const seconds = span === 'none' ? null : parseSpan(span);
      const id = await sandboxOf(cli, given);
      const sandbox = await (await cli.torpor()).sandboxes.setTimeout(id, seconds, { signal: cli.signal });
      cli.answer(sandbox, () =>
        sandbox.endsAt === null
          ? `${id} has no timeout`
          : `${id} ends ${relative(sandbox.endsAt, cli.io.now())}, then ${sandbox.onTimeout}`,
      );
    }),
  );
};

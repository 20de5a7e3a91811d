/** `torpor health` */
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { fieldLines } from '../columns.ts';
import { span } from '../human-units.ts';
import { sandboxOf } from '../sandbox-argument.ts';
import { stateText } from '../sandbox-text.ts';

export const define: Define = (command, handler) => {
  command.argument('[sandbox]', 'sandbox id or name');
  addExamples(command, {
    examples: [
      ['torpor health web', 'check the agent; never wakes the sandbox'],
      ['torpor health web --json | jq -r .agent', 'prints answers, silent or not_running'],
    ],
    seeAlso: ['get', 'drives'],
  });
  command.action(
    handler(async (cli, [given]) => {
      const id = await sandboxOf(cli, given);
      const health = await (await cli.torpor()).sandboxes.health(id, { signal: cli.signal });
      const { colors } = cli.io;
      const agent = {
        answers: colors.green('answers'),
        silent: colors.red('silent'),
        not_running: 'not running',
      };
      cli.answer(health, () =>
        fieldLines(
          [
            ['id', health.sandboxId],
            ['state', stateText(health.state, colors)],
            ['agent', agent[health.agent]],
            ['because', health.agentError?.message ?? null],
            ['up', health.uptimeSeconds === null ? null : span(health.uptimeSeconds * 1_000)],
          ],
          colors,
        ),
      );
    }),
  );
};

/** `torpor template ls` */
import type { TemplateView } from '@torpor/protocol';
import { teach } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { relative } from '../human-units.ts';

export const define: Define = (command, act) => {
  command
    .command('ls', { isDefault: true })
    .alias('list')
    .summary('list templates')
    .action(
      act(async (cli) => {
        const { templates } = await cli.torpor();
        const items: TemplateView[] = [];
        for await (const template of templates.list({ signal: cli.signal })) items.push(template);
        const rows = items.map((one) => [
          one.name,
          one.runtime,
          one.checkpointId,
          relative(one.createdAt, cli.io.now()),
        ]);
        cli.answer({ items, nextCursor: null }, () =>
          columns(['NAME', 'RUNTIME', 'CHECKPOINT', 'MADE'], rows, cli.io.colors),
        );
      }),
    );
  teach(command, {
    examples: [['torpor template ls', 'what there is']],
    seeAlso: ['create', 'snapshot'],
  });
};

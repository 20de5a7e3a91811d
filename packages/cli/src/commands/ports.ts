/** `torpor ports` */
import { teach } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { sandboxOf } from '../sandbox-argument.ts';

export const define: Define = (command, act) => {
  command.argument('[sandbox]', 'its id or name');
  teach(command, {
    examples: [['torpor ports web', 'what listens, and where to find it']],
    seeAlso: ['ps', 'get'],
  });
  command.action(
    act(async (cli, [sandbox]) => {
      const id = await sandboxOf(cli, sandbox);
      const items = await (await cli.torpor()).sandboxes.ports(id, { signal: cli.signal });
      const { colors } = cli.io;
      const rows = items.map(({ port, service, listening, process, url }) => [
        String(port),
        service ?? '-',
        listening ? colors.green('open') : colors.dim('closed'),
        process ?? '-',
        url ?? '-',
      ]);
      cli.answer({ items, nextCursor: null }, () =>
        rows.length === 0 ? '' : columns(['PORT', 'SERVICE', 'STATE', 'PROCESS', 'ADDRESS'], rows, colors),
      );
      if (items.length === 0) cli.remark('No port is declared or open.');
    }),
  );
};

/** `torpor ports` */
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { parseNumber } from '../human-units.ts';
import { sandboxOf } from '../sandbox-argument.ts';

export const define: Define = (command, handler) => {
  command.argument('[sandbox]', 'sandbox id or name');
  command.option('--link <port>', 'print a link that lets one browser open a private port', parseNumber);
  addExamples(command, {
    examples: [
      ['torpor ports web', 'ports and their addresses'],
      ['torpor ports web --link 3000', 'link for a browser without a key'],
    ],
    seeAlso: ['ps', 'get'],
  });
  command.action(
    handler<{ readonly link?: number }>(async (cli, [sandbox], { link: port }) => {
      const id = await sandboxOf(cli, sandbox);
      if (port !== undefined) {
        const link = await (await cli.torpor()).sandboxes.previewLink(id, { port }, { signal: cli.signal });
        cli.answer(link, () => link.url);
        return;
      }
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
      if (items.length === 0) cli.note('No port is declared or open.');
    }),
  );
};

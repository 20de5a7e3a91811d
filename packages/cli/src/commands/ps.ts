/** `torpor ps` */
import { teach } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { relative } from '../human-units.ts';
import { sandboxOf } from '../sandbox-argument.ts';

export const define: Define = (command, act) => {
  command.argument('[sandbox]', 'its id or name');
  teach(command, {
    examples: [['torpor ps web', 'services, background processes, and how they fared']],
    seeAlso: ['logs', 'exec', 'ports'],
  });
  command.action(
    act(async (cli, words) => {
      // `torpor sandbox job list <id>` is what other tools call it.
      const given = words[0] === 'list' || words[0] === 'ls' ? words[1] : words[0];
      const id = await sandboxOf(cli, given);
      const items = await (await cli.torpor()).sandboxes.processes(id, { signal: cli.signal });
      const rows = items.map((one) => [
        one.pid === null ? '-' : String(one.pid),
        one.id ?? '-',
        one.kind,
        one.status,
        relative(one.startedAt, cli.io.now()),
        one.reason === null ? one.command : `${one.command}  (${one.reason})`,
      ]);
      cli.answer({ items, nextCursor: null }, () =>
        rows.length === 0
          ? ''
          : columns(['PID', 'ID', 'KIND', 'STATUS', 'STARTED', 'COMMAND'], rows, cli.io.colors),
      );
      if (items.length === 0) cli.remark('Nothing runs that was started from here.');
    }),
  );
  command.argument('[more]', 'ignored; for tools that say `job list <sandbox>`');
};

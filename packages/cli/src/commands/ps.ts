/** `torpor ps` */
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { relative } from '../human-units.ts';
import { anySandboxOf } from '../sandbox-argument.ts';

export const define: Define = (command, handler) => {
  command
    .command('ls', { isDefault: true })
    .alias('list')
    .summary('list services, background processes and commands of a sandbox')
    .argument('[sandbox]', 'sandbox id or name')
    .action(
      handler(async (cli, [sandbox]) => {
        const id = await anySandboxOf(cli, sandbox);
        const items = await (await cli.torpor()).sandboxes.processes(id, { signal: cli.signal });
        const rows = items.map((one) => [
          one.pid === null ? '-' : String(one.pid),
          one.id ?? '-',
          one.kind,
          one.status,
          relative(one.startedAt, cli.io.now()),
          one.reason === null ? one.command : `${one.command}  (${one.reason})`,
        ]);
        const titles = ['PID', 'ID', 'KIND', 'STATUS', 'STARTED', 'COMMAND'];
        cli.answer({ items, nextCursor: null }, () =>
          rows.length === 0 ? '' : columns(titles, rows, cli.io.colors),
        );
        if (items.length === 0) cli.note('No services, background processes or commands.');
      }),
    );
  addExamples(command, {
    examples: [['torpor ps web', 'processes and their status']],
    seeAlso: ['job', 'logs', 'exec', 'ports'],
  });
};

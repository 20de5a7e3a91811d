/** `torpor kill` */
import type { SandboxView } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { confirm } from '../confirm.ts';
import { sandboxOf } from '../sandbox-argument.ts';

export const define: Define = (command, handler) => {
  command.argument('[sandboxes...]', 'sandbox ids or names').option('-y, --yes', 'do not ask');
  addExamples(command, {
    examples: [
      ['torpor kill web', 'kill it; named checkpoints stay'],
      ['torpor kill $(torpor ls -q)', 'kill all sandboxes'],
    ],
    seeAlso: ['pause', 'ls'],
  });
  command.action(
    handler<{ yes?: boolean }>(async (cli, given, { yes }) => {
      const wanted = given.length > 0 ? given : [undefined];
      const ids = [...new Set(await Promise.all(wanted.map((one) => sandboxOf(cli, one))))];
      const what = ids.length === 1 ? ids[0] : `${ids.length} sandboxes`;
      if (!yes) await confirm(cli, `Kill ${what}? Only named checkpoints will remain.`);
      const { sandboxes } = await cli.torpor();
      const killed: SandboxView[] = [];
      for (const id of ids) {
        killed.push(await cli.withSpinner(`Killing ${id}…`, sandboxes.kill(id, { signal: cli.signal })));
        if (!cli.json) cli.line(`${id} is killed`);
      }
      if (cli.json) cli.answer(killed.length === 1 ? killed[0] : { items: killed }, () => '');
    }),
  );
};

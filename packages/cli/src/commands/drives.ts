/** `torpor drives` */
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { bytes } from '../human-units.ts';
import { sandboxOf } from '../sandbox-argument.ts';

export const define: Define = (command, handler) => {
  command.argument('[sandbox]', 'sandbox id or name');
  addExamples(command, {
    examples: [['torpor drives web', 'size, usage and disk limit; never wakes the sandbox']],
    seeAlso: ['health', 'files'],
  });
  command.action(
    handler(async (cli, [given]) => {
      const id = await sandboxOf(cli, given);
      const items = await (await cli.torpor()).sandboxes.drives(id, { signal: cli.signal });
      const rows = items.map(({ path, totalBytes, usedBytes, freeBytes, countedBytes, limitBytes }) => [
        path,
        ...[totalBytes, usedBytes, freeBytes].map(bytes),
        ...[countedBytes, limitBytes].map((known) => (known === null ? '-' : bytes(known))),
      ]);
      cli.answer({ items, nextCursor: null }, () =>
        columns(['PATH', 'SIZE', 'USED', 'FREE', 'COUNTED', 'LIMIT'], rows, cli.io.colors),
      );
    }),
  );
};

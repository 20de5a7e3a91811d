/** `torpor runtimes` */
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { columns } from '../columns.ts';

/** What survives a pause. */
export const KEPT = { memory: 'memory+files', files: 'files', none: 'nothing' } as const;

export const define: Define = (command, handler) => {
  addExamples(command, {
    examples: [['torpor runtimes', 'what survives a pause, and other capabilities']],
    seeAlso: ['doctor', 'create'],
  });
  command.action(
    handler(async (cli) => {
      const items = await (await cli.torpor()).runtimes({ signal: cli.signal });
      const yes = (can: boolean) => (can ? 'yes' : '-');
      const rows = items.map(({ name, default: usual, capabilities: can }) => [
        usual ? `${name} (default)` : name,
        KEPT[can.pause],
        yes(can.fork),
        yes(can.snapshotWhileRunning),
        yes(can.pty),
        yes(can.isolated),
      ]);
      cli.answer({ items, nextCursor: null }, () =>
        columns(['RUNTIME', 'KEEPS', 'FORK', 'LIVE SNAPSHOT', 'TERMINAL', 'ISOLATED'], rows, cli.io.colors),
      );
    }),
  );
};

/** `torpor snapshot` */
import type { SnapshotRequest } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { parseSpan } from '../human-units.ts';
import { sandboxOf } from '../sandbox-argument.ts';
import { checkpointDetails } from '../sandbox-text.ts';
import { withoutUndefined } from '../without-undefined.ts';

export const define: Define = (command, handler) => {
  command
    .argument('[sandbox]', 'sandbox id or name')
    .option('-n, --name <name>', 'name; a named checkpoint is kept until it is deleted')
    .option('--expires <span>', 'delete it after this time, as 2h or 7d', parseSpan);
  addExamples(command, {
    examples: [
      ['torpor snapshot web --name before-upgrade', 'a checkpoint to return to'],
      ['torpor create --from $(torpor snapshot web)', 'create a sandbox from it'],
    ],
    seeAlso: ['rollback', 'checkpoints', 'fork'],
  });
  command.action(
    handler<{ name?: string; expires?: number }>(async (cli, [sandbox], { name, expires }) => {
      const id = await sandboxOf(cli, sandbox);
      const { sandboxes } = await cli.torpor();
      const request = withoutUndefined({ name, expiresInSeconds: expires }) as SnapshotRequest;
      const work = sandboxes.snapshot(id, request, { signal: cli.signal });
      const checkpoint = await cli.withSpinner(`Sealing a checkpoint of ${id}…`, work);
      cli.answer(checkpoint, () => checkpoint.id);
      cli.note(checkpointDetails(checkpoint, cli.io.now(), cli.io.errorColors));
    }),
  );
};

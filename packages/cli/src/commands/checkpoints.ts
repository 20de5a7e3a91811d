/** `torpor checkpoints` with `ls`, `get`, `name`, `verify` and `rm`. */
import type { CheckpointId, CheckpointView } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { EXIT } from '../exit-codes.ts';
import { bytes } from '../human-units.ts';
import { anySandboxOf } from '../sandbox-argument.ts';
import { checkpointColumns, checkpointDetails } from '../sandbox-text.ts';

export const define: Define = (command, handler) => {
  command
    .command('ls', { isDefault: true })
    .alias('list')
    .summary('list the checkpoints of a sandbox, newest first')
    .argument('[sandbox]', 'sandbox id or name')
    .action(
      handler(async (cli, [sandbox]) => {
        const id = await anySandboxOf(cli, sandbox);
        const { sandboxes } = await cli.torpor();
        const items: CheckpointView[] = [];
        let all = 0;
        let cursor: string | undefined;
        do {
          const page = await sandboxes.checkpoints(id, { cursor, limit: 1_000, signal: cli.signal });
          items.push(...page.items);
          all = page.bytes;
          cursor = page.nextCursor ?? undefined;
        } while (cursor !== undefined);
        cli.answer({ items, nextCursor: null, bytes: all }, () =>
          items.length === 0 ? '' : checkpointColumns(items, cli.io.now(), cli.io.colors),
        );
        cli.note(items.length === 0 ? `${id} has no checkpoint.` : `${bytes(all)} in total`);
      }),
    );
  command
    .command('get')
    .summary('show one checkpoint')
    .argument('<checkpoint>', 'checkpoint id')
    .action(
      handler(async (cli, [id]) => {
        const checkpoint = await (await cli.torpor()).checkpoints.get(id as CheckpointId, {
          signal: cli.signal,
        });
        cli.answer(checkpoint, () => checkpointDetails(checkpoint, cli.io.now(), cli.io.colors));
      }),
    );
  command
    .command('name')
    .summary('give a checkpoint a name, and keep it')
    .argument('<checkpoint>', 'checkpoint id')
    .argument('<name>', 'a name that no other checkpoint of the sandbox has')
    .action(
      handler(async (cli, [id, name]) => {
        const { checkpoints } = await cli.torpor();
        const checkpoint = await checkpoints.name(id as CheckpointId, name ?? '', { signal: cli.signal });
        cli.answer(checkpoint, () => checkpointDetails(checkpoint, cli.io.now(), cli.io.colors));
      }),
    );
  command
    .command('verify')
    .summary('read the contents of a checkpoint and check them')
    .argument('<checkpoint>', 'checkpoint id')
    .action(
      handler(async (cli, [id]) => {
        const { checkpoints } = await cli.torpor();
        const work = checkpoints.verify(id as CheckpointId, { signal: cli.signal });
        const checkpoint = await cli.withSpinner(`Reading ${id}…`, work);
        const { unusableMemory } = checkpoint;
        cli.answer(checkpoint, () => {
          const details = checkpointDetails(checkpoint, cli.io.now(), cli.io.colors);
          return unusableMemory ? `${details}\nits memory cannot be restored: ${unusableMemory}` : details;
        });
        return checkpoint.health === 'damaged' ? EXIT.general : EXIT.ok;
      }),
    );
  command
    .command('rm')
    .alias('delete')
    .summary('delete a checkpoint that nothing needs')
    .argument('<checkpoint>', 'checkpoint id')
    .action(
      handler(async (cli, [id]) => {
        await (await cli.torpor()).checkpoints.delete(id as CheckpointId, { signal: cli.signal });
        cli.answer({ id, state: 'deleted' }, () => `${id} is deleted`);
      }),
    );
  addExamples(command, {
    examples: [
      ['torpor checkpoints web', 'list the checkpoints of web'],
      ['torpor checkpoints verify ckpt_…', 'check that it is intact'],
    ],
    seeAlso: ['snapshot', 'rollback', 'resume'],
  });
};

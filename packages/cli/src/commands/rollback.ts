/** `torpor rollback` */
import type { CheckpointId } from '@torpor/protocol';
import { teach } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { sandboxOf } from '../sandbox-argument.ts';
import { startedText } from './resume.ts';

export const define: Define = (command, act) => {
  command
    .argument('<sandbox>', 'its id or name')
    .argument('<checkpoint>', 'the id of one of its checkpoints');
  teach(command, {
    examples: [['torpor rollback web ckpt_…', 'back in place; what was since then is gone']],
    seeAlso: ['checkpoints', 'snapshot', 'resume'],
  });
  command.action(
    act(async (cli, [sandbox, checkpoint]) => {
      const id = await sandboxOf(cli, sandbox);
      const { sandboxes } = await cli.torpor();
      const work = sandboxes.rollback(id, checkpoint as CheckpointId, { signal: cli.signal });
      const reply = await cli.during(`Bringing ${id} back…`, work);
      cli.answer(reply, () => startedText(cli, reply));
    }),
  );
};

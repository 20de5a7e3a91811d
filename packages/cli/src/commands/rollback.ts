/** `torpor rollback` */
import { teach } from '../build-command.ts';
import { checkpointOf } from '../checkpoint-argument.ts';
import type { Define } from '../cli.ts';
import { sandboxOf } from '../sandbox-argument.ts';
import { startedText } from './resume.ts';

export const define: Define = (command, act) => {
  command
    .argument('<sandbox>', 'its id or name')
    .argument('<checkpoint>', 'one of its checkpoints, by id or name');
  teach(command, {
    examples: [
      ['torpor rollback web good', 'back in place, to the checkpoint called "good"'],
      ['torpor rollback web ckpt_…', 'to any other; where it was is sealed first'],
    ],
    seeAlso: ['checkpoints', 'snapshot', 'resume'],
  });
  command.action(
    act(async (cli, [sandbox, checkpoint]) => {
      const id = await sandboxOf(cli, sandbox);
      const { sandboxes } = await cli.torpor();
      const work = sandboxes.rollback(id, await checkpointOf(cli, id, String(checkpoint)), {
        signal: cli.signal,
      });
      const reply = await cli.during(`Bringing ${id} back…`, work);
      cli.answer(reply, () => startedText(cli, reply));
    }),
  );
};

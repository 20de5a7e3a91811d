/** `torpor pause` */
import type { PauseRequest } from '@torpor/protocol';
import { Option } from 'commander';
import { teach } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { bytes } from '../human-units.ts';
import { sandboxOf } from '../sandbox-argument.ts';

export const define: Define = (command, act) => {
  command
    .argument('[sandbox]', 'its id or name')
    .addOption(
      new Option('--mode <mode>', 'what to keep (default: all the runtime can)').choices(['memory', 'files']),
    );
  teach(command, {
    examples: [
      ['torpor pause web', 'seal a checkpoint and free the machine'],
      ['torpor sleep web', 'the same'],
    ],
    seeAlso: ['resume', 'snapshot', 'checkpoints'],
  });
  command.action(
    act<PauseRequest>(async (cli, [given], { mode }) => {
      const id = await sandboxOf(cli, given);
      const { sandboxes } = await cli.torpor();
      const request = mode === undefined ? {} : { mode };
      const reply = await cli.during(
        `Putting ${id} to sleep…`,
        sandboxes.pause(id, request, { signal: cli.signal }),
      );
      cli.answer(reply, () => {
        const { parts, bytes: size, id: checkpointId } = reply.checkpoint;
        const kept = [parts.memory && 'memory', parts.files && 'files'].filter(Boolean).join(' and ');
        return `${id} sleeps: ${kept} in ${checkpointId}${size === null ? '' : `, ${bytes(size)}`}`;
      });
    }),
  );
};

/** `torpor pause` */
import type { PauseRequest } from '@torpor/protocol';
import { Option } from 'commander';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { bytes } from '../human-units.ts';
import { sandboxOf } from '../sandbox-argument.ts';

export const define: Define = (command, handler) => {
  command
    .argument('[sandbox]', 'sandbox id or name')
    .addOption(
      new Option('--mode <mode>', 'what to keep (default: all that the runtime can keep)').choices([
        'memory',
        'files',
      ]),
    );
  addExamples(command, {
    examples: [
      ['torpor pause web', 'seal a checkpoint and free memory and CPU'],
      ['torpor sleep web', 'the same'],
    ],
    seeAlso: ['resume', 'snapshot', 'checkpoints'],
  });
  command.action(
    handler<PauseRequest>(async (cli, [given], { mode }) => {
      const id = await sandboxOf(cli, given);
      const { sandboxes } = await cli.torpor();
      const request = mode === undefined ? {} : { mode };
      const reply = await cli.withSpinner(
        `Pausing ${id}…`,
        sandboxes.pause(id, request, { signal: cli.signal }),
      );
      cli.answer(reply, () => {
        const { parts, bytes: size, id: checkpointId } = reply.checkpoint;
        const kept = [parts.memory && 'memory', parts.files && 'files'].filter(Boolean).join(' and ');
        return `${id} is paused: ${kept} in ${checkpointId}${size === null ? '' : `, ${bytes(size)}`}`;
      });
    }),
  );
};

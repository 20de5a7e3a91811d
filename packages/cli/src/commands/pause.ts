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
    )
    .addOption(
      new Option(
        '--durability <durability>',
        'when to answer: sealed on this machine, or replicated in the store too (default: as the server says)',
      ).choices(['sealed', 'replicated']),
    );
  addExamples(command, {
    examples: [
      ['torpor pause web', 'seal a checkpoint and free memory and CPU'],
      ['torpor sleep web', 'the same'],
      ['torpor pause web --durability replicated', 'wait until the checkpoint is in the store of the server'],
    ],
    seeAlso: ['resume', 'snapshot', 'checkpoints'],
  });
  command.action(
    handler<PauseRequest>(async (cli, [given], { mode, durability }) => {
      const id = await sandboxOf(cli, given);
      const { sandboxes } = await cli.torpor();
      const request = {
        ...(mode === undefined ? {} : { mode }),
        ...(durability === undefined ? {} : { durability }),
      };
      const reply = await cli.withSpinner(
        `Pausing ${id}…`,
        sandboxes.pause(id, request, { signal: cli.signal }),
      );
      cli.answer(reply, () => {
        const { parts, bytes: size, id: checkpointId } = reply.checkpoint;
        const kept = [parts.memory && 'memory', parts.files && 'files'].filter(Boolean).join(' and ');
        const where = `${id} is paused: ${kept} in ${checkpointId}${size === null ? '' : `, ${bytes(size)}`}`;
        const { warm, warmReason } = reply;
        return [
          where,
          warm ? 'it stays in memory and wakes within milliseconds' : null,
          warmReason === null ? null : `it does not stay in memory: ${warmReason}`,
          durability === 'replicated' && reply.replicated === true ? 'the store has it' : null,
          reply.replicatedReason ? `the store does not have it yet: ${reply.replicatedReason}` : null,
        ]
          .filter((part) => part !== null)
          .join('; ');
      });
    }),
  );
};

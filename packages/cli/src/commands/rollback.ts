/** `torpor rollback` */
import type { CheckpointId, SandboxId } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Cli, Define } from '../cli.ts';
import { CliError } from '../failure.ts';
import { sandboxOf } from '../sandbox-argument.ts';
import { startedText } from './resume.ts';

export const define: Define = (command, handler) => {
  command.argument('<sandbox>', 'sandbox id or name').argument('<checkpoint>', 'checkpoint id or name');
  addExamples(command, {
    examples: [
      ['torpor rollback web good', 'to the checkpoint called "good"'],
      ['torpor rollback web ckpt_…', 'the current state is sealed first'],
    ],
    seeAlso: ['checkpoints', 'snapshot', 'resume'],
  });
  command.action(
    handler(async (cli, [sandbox, checkpoint]) => {
      const id = await sandboxOf(cli, sandbox);
      const { sandboxes } = await cli.torpor();
      const work = sandboxes.rollback(id, await checkpointOf(cli, id, String(checkpoint)), {
        signal: cli.signal,
      });
      const reply = await cli.withSpinner(`Rolling back ${id}…`, work);
      cli.answer(reply, () => startedText(cli, reply));
    }),
  );
};

/** Finds a checkpoint of the sandbox by its id or by a name it was given. */
async function checkpointOf(cli: Cli, sandbox: SandboxId, given: string): Promise<CheckpointId> {
  if (given.startsWith('ckpt_')) return given as CheckpointId;
  const { sandboxes } = await cli.torpor();
  let cursor: string | undefined;
  do {
    const page = await sandboxes.checkpoints(sandbox, { cursor, limit: 1_000, signal: cli.signal });
    const named = page.items.find(({ names }) => names.includes(given));
    if (named !== undefined) return named.id;
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
  throw new CliError('NOT_FOUND', `${sandbox} has no checkpoint called "${given}".`, {
    hint: '`torpor checkpoints` lists them.',
  });
}

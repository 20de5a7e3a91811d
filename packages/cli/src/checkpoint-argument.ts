/** Which checkpoint of a sandbox is meant: by id, or by a name it was given. */
import type { CheckpointId, SandboxId } from '@torpor/protocol';
import type { Cli } from './cli.ts';
import { CliError } from './failure.ts';

export async function checkpointOf(cli: Cli, sandbox: SandboxId, given: string): Promise<CheckpointId> {
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
    hint: 'See `torpor checkpoints`.',
  });
}

/** Whether sandboxes other than its own may start from a checkpoint. */
import { TorporError } from '@torpor/protocol';
import { type Context, runtimeOf } from '../context.ts';
import type { Queryable } from '../ports/database.ts';
import type { Sandbox } from '../sandbox.ts';
import { type Checkpoint, findCheckpoint } from './checkpoint.ts';

export function requireForkable(ctx: Context, checkpoint: Checkpoint): void {
  const { sandboxId, replayable } = checkpoint;
  if (sandboxId === null || (replayable && runtimeOf(ctx, checkpoint).capabilities().fork)) return;
  throw onlyForItsOwnSandbox(checkpoint);
}

/** Refuses a checkpoint that the next start of its own sandbox uses up. */
export async function requireAttachedReplayable(db: Queryable, { checkpointId }: Sandbox): Promise<void> {
  const attached = checkpointId === null ? undefined : await findCheckpoint(db, checkpointId);
  if (attached !== undefined && !attached.replayable) throw onlyForItsOwnSandbox(attached);
}

function onlyForItsOwnSandbox({ id, replayable }: Checkpoint): TorporError {
  return new TorporError(
    'capability_unsupported',
    `Checkpoint ${id} can only be resumed by its own sandbox.`,
    {
      checkpointId: id,
      ...(replayable ? {} : { hint: 'The next start uses it up. Resume the sandbox first.' }),
    },
  );
}

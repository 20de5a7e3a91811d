/** Says whether a checkpoint can be started, before anything is. */
import { type CheckpointHealth, type ErrorCode, TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { note, runtimeOf } from '../context.ts';
import type { MemoryVerdict } from '../ports/runtime.ts';
import { lockOwner } from '../sandbox.ts';
import { within } from '../within.ts';
import { type Checkpoint, forRuntime } from './checkpoint.ts';

/** Presence, sizes and seal records; contents are for `verify`. Throws the checkpoint_* errors. */
export async function inspectCheckpoint(
  ctx: Context,
  checkpoint: Checkpoint,
  signal?: AbortSignal,
): Promise<MemoryVerdict> {
  return within(
    ctx.clock,
    ctx.settings.callMs,
    `Inspecting checkpoint ${checkpoint.id}`,
    async (own) => {
      const asking = runtimeOf(ctx, checkpoint).inspect(forRuntime(ctx.store, checkpoint), own);
      asking.catch(() => {});
      // What is not kept any more is missing, whatever a runtime makes of that.
      if (!checkpoint.external) await ctx.store.inspect(checkpoint.id, own);
      return asking;
    },
    signal,
  ).catch((thrown: unknown) => {
    throw asCheckpointError(thrown, checkpoint);
  });
}

/** A store that does not answer in time leaves the checkpoint unread, which says nothing against it. */
function asCheckpointError(thrown: unknown, checkpoint: Checkpoint): unknown {
  if (!(thrown instanceof TorporError)) return thrown;
  const about = { checkpointId: checkpoint.id, details: { location: checkpoint.location } };
  if (thrown.code !== 'timeout') return thrown.with(about);
  return new TorporError('checkpoint_unreadable', `Checkpoint ${checkpoint.id} could not be read in time.`, {
    ...about,
    cause: thrown,
  });
}

/** Codes that say the checkpoint itself is at fault, for good. */
const DAMAGE: ReadonlySet<ErrorCode> = new Set(['checkpoint_missing', 'checkpoint_corrupt']);

export function provesDamage(thrown: unknown): thrown is TorporError {
  return thrown instanceof TorporError && DAMAGE.has(thrown.code);
}

/** Writes down what an inspection or verification saw, with an event when it is news. */
export async function recordHealth(
  ctx: Context,
  checkpoint: Checkpoint,
  health: CheckpointHealth,
  error: TorporError | null,
  verifiedAt: number | null,
): Promise<void> {
  await ctx.db.transaction(async (tx) => {
    const owner = await lockOwner(tx, checkpoint.sandboxId);
    const rows = await tx.query(
      `UPDATE checkpoints SET health = $2, health_code = $3, health_detail = $4, scrubbed_at = $6,
         verified_at = COALESCE($5, verified_at) WHERE id = $1 AND state = 'sealed' RETURNING id`,
      [checkpoint.id, health, error?.code ?? null, error?.message ?? null, verifiedAt, ctx.clock.now()],
    );
    if (owner === undefined || rows.length === 0 || checkpoint.health === health) return;
    await note(
      ctx,
      tx,
      owner,
      'checkpoint.health',
      { checkpointId: checkpoint.id, health, code: error?.code ?? null, detail: error?.message ?? null },
      { operationId: null },
    );
  });
}

/** Reads everything, records what was seen, and says it. */
export async function verifyCheckpoint(ctx: Context, checkpoint: Checkpoint): Promise<CheckpointHealth> {
  try {
    await within(
      ctx.clock,
      ctx.settings.operationMs,
      `Verifying checkpoint ${checkpoint.id}`,
      async (signal) => {
        if (!checkpoint.external) await ctx.store.verify(checkpoint.id, signal);
        await runtimeOf(ctx, checkpoint).verify(forRuntime(ctx.store, checkpoint), signal);
      },
    );
  } catch (thrown) {
    const error = TorporError.from(asCheckpointError(thrown, checkpoint));
    // What could not be read is neither well nor damaged, and the last verification still stands.
    const health = provesDamage(error) ? 'damaged' : 'unknown';
    await recordHealth(ctx, checkpoint, health, error, health === 'damaged' ? ctx.clock.now() : null);
    return health;
  }
  await recordHealth(ctx, checkpoint, 'ok', null, ctx.clock.now());
  return 'ok';
}

/** Fetches parts of a replicated checkpoint that this machine has lost. The local disk is a cache of the store. */
import { TorporError } from '@torpor/protocol';
import type { Checkpoint } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import { recordEvent } from '../ledger/transition.ts';
import { lockSandboxOf } from '../sandbox.ts';
import { withTimeout } from '../with-timeout.ts';
import { objectsOf } from './objects.ts';

/** Whether the store has the checkpoint, as far as the database knows. */
export function isReplicated(checkpoint: Checkpoint): boolean {
  return checkpoint.replicatedAt !== null && !checkpoint.external;
}

/**
 * Returns whether anything was brought back. Throws `checkpoint_unreadable` when the store cannot be used now, and
 * `checkpoint_missing` or `checkpoint_corrupt` when it is proved that the store has lost the checkpoint too.
 */
export async function fetchReplica(
  ctx: Context,
  checkpoint: Checkpoint,
  look: 'presence' | 'contents',
  signal: AbortSignal,
): Promise<boolean> {
  const { id: checkpointId } = checkpoint;
  if (ctx.replicator === undefined) {
    throw unreadable(checkpoint, 'it is in a store, and this server has none (--store)', undefined);
  }
  const { replicas } = ctx.replicator;
  const began = ctx.clock.monotonic();
  const objects = await objectsOf(ctx.db, checkpointId);
  let fetched: Awaited<ReturnType<typeof replicas.fetch>>;
  try {
    await ctx.replicator.requireStore(signal);
    fetched = await replicas.fetch(checkpointId, objects, look, signal);
  } catch (thrown) {
    signal.throwIfAborted();
    throw asReadFailure(checkpoint, thrown);
  }
  if (fetched.length === 0) return false;
  const durationMs = Math.round(ctx.clock.monotonic() - began);
  const parts = fetched.map(({ kind, subject }) => (subject === checkpointId ? kind : `${kind} ${subject}`));
  await ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandboxOf(tx, checkpoint.sandboxId);
    if (sandbox === undefined) return;
    await recordEvent(
      ctx,
      tx,
      sandbox,
      'checkpoint.fetched',
      { checkpointId, store: replicas.url, parts, durationMs },
      { operationId: null },
    );
  });
  return true;
}

/** Whether a failed look shows that the store has lost an object. */
export function provesLoss({ code }: TorporError): boolean {
  return code === 'checkpoint_missing' || code === 'checkpoint_corrupt';
}

/** Null when the store has every object of the checkpoint; otherwise the error that says what is wrong. */
export async function replicaFault(
  ctx: Context,
  checkpoint: Checkpoint,
  ms: number,
): Promise<TorporError | null> {
  if (ctx.replicator === undefined)
    return unreadable(checkpoint, 'it is in a store, and this server has none (--store)', undefined);
  const { replicator } = ctx;
  const objects = await objectsOf(ctx.db, checkpoint.id);
  const looking = withTimeout(
    ctx.clock,
    ms,
    'Asking the store',
    async (signal) => {
      await replicator.requireStore(signal);
      await replicator.replicas.requirePresent(objects, signal);
    },
    ctx.stopping,
  );
  return looking.then(
    () => null,
    (thrown: unknown) => asReadFailure(checkpoint, thrown),
  );
}

/**
 * Turns errors of the store into errors about the checkpoint. A refusal by the store does not mean that the caller
 * lacks a right.
 */
function asReadFailure(checkpoint: Checkpoint, thrown: unknown): TorporError {
  const error = TorporError.from(thrown);
  if (provesLoss(error) || error.code === 'internal') return error;
  if (error.code === 'storage_full' && error.toBody().details?.['fault'] === undefined) return error;
  return unreadable(checkpoint, error.message, error);
}

function unreadable({ id }: Checkpoint, why: string, cause: TorporError | undefined): TorporError {
  const details = cause?.toBody().details;
  return new TorporError('checkpoint_unreadable', `Checkpoint ${id} could not be fetched: ${why}`, {
    checkpointId: id,
    ...(details === undefined ? {} : { details: { ...details, storeCode: cause?.code } }),
    cause,
  });
}

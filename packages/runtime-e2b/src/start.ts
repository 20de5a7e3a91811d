/** Brings an instance up at the provider: creates a sandbox, or resumes a paused one. */
import type { Instance, SealedCheckpoint, StartSpec } from '@torpor/engine';
import type { CheckpointId, CheckpointMode } from '@torpor/protocol';
import { type ExternalCheckpoint, missing } from './checkpoint-needs.ts';
import type { Connection } from './provider/provider.ts';
import type { RuntimeContext } from './runtime-context.ts';

/** A create must not be aborted half done. The timeout of the request to the provider bounds it. */
const NEVER_ABORTED = new AbortController().signal;

export async function startInstance(
  ctx: RuntimeContext,
  instance: Instance,
  from: SealedCheckpoint,
  checkpoint: ExternalCheckpoint,
  mode: CheckpointMode,
  spec: StartSpec,
  signal: AbortSignal,
): Promise<void> {
  if (checkpoint.is === 'paused') await resume(ctx, instance, from.id, checkpoint.providerId, mode, signal);
  else await create(ctx, instance, from.id, checkpoint, spec);
}

async function create(
  ctx: RuntimeContext,
  instance: Instance,
  checkpointId: CheckpointId,
  checkpoint: Exclude<ExternalCheckpoint, { is: 'paused' }>,
  spec: StartSpec,
): Promise<void> {
  const { provider, records, instances } = ctx;
  const origin = checkpoint.is === 'template' ? checkpoint.template : checkpoint.snapshotId;
  const connection = await provider
    .create(origin, instances.metadataOf(instance), { ...spec.env }, NEVER_ABORTED)
    .catch(async (thrown: unknown) => {
      // The `e2b` package has no error type for a missing snapshot.
      const exists = await checkpointExists(ctx, checkpointId, checkpoint, NEVER_ABORTED).catch(() => true);
      throw exists ? thrown : missing(checkpointId);
    });
  const { providerId } = connection;
  await records.write(instance, { providerId, reached: connection, state: 'running', captured: null });
}

async function resume(
  ctx: RuntimeContext,
  instance: Instance,
  from: CheckpointId,
  providerId: string,
  mode: CheckpointMode,
  signal: AbortSignal,
): Promise<void> {
  const record = { providerId, state: 'starting', from, captured: null } as const;
  // Written before the provider is asked: from then on the sandbox may be the only copy and must be found again.
  await ctx.records.write(instance, { ...record, reached: null });
  const reached = await connect(ctx, providerId, from, mode, signal);
  signal.throwIfAborted();
  await ctx.instances.markRunning(instance, { ...record, reached });
}

/** A failed connect may have resumed the sandbox, and only the answer was lost. So the provider is asked for its state. */
async function connect(
  { provider }: RuntimeContext,
  providerId: string,
  from: CheckpointId,
  mode: CheckpointMode,
  signal: AbortSignal,
): Promise<Connection> {
  try {
    return await provider.connect(providerId, mode === 'memory' ? 'restore' : 'reboot', signal);
  } catch (thrown) {
    signal.throwIfAborted();
    const state = await provider.stateOf(providerId, signal).catch(() => {
      throw thrown;
    });
    if (state === 'gone') throw missing(from);
    if (state === 'paused') throw thrown;
    return provider.connect(providerId, 'restore', signal);
  }
}

/** A template is assumed to exist. */
export async function checkpointExists(
  { snapshots, provider }: RuntimeContext,
  id: CheckpointId,
  checkpoint: ExternalCheckpoint,
  signal: AbortSignal,
): Promise<boolean> {
  if (checkpoint.is === 'snapshot') return snapshots.exists(id, checkpoint.snapshotId, signal);
  if (checkpoint.is === 'paused') return (await provider.stateOf(checkpoint.providerId, signal)) !== 'gone';
  return true;
}

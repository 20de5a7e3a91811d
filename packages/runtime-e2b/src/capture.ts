/** Freezes an instance, makes a checkpoint of it, and thaws it. */
import type { Captured, FreezePurpose, Instance, Staging } from '@torpor/engine';
import { type CheckpointMode, TorporError } from '@torpor/protocol';
import { captured } from './checkpoint-needs.ts';
import type { InstanceRecord } from './instance/instance-records.ts';
import { notAlive } from './instance/instances.ts';
import type { RuntimeContext } from './runtime-context.ts';

const POLL_MS = 250;
/** A provider may need a moment until it shows a pause. */
const MAX_POLLS = 20;

/**
 * For a pause, the provider pauses the sandbox; its answer is not trusted, only the state that it shows. For a snapshot,
 * the provider stops the sandbox itself while it takes the snapshot.
 */
export async function freezeInstance(
  { provider, records, instances, clock }: RuntimeContext,
  instance: Instance,
  purpose: FreezePurpose,
  signal: AbortSignal,
): Promise<void> {
  const record = await instances.require(instance, signal);
  const { providerId } = record;
  const wanted = purpose === 'pause' ? 'frozen' : 'held';
  const state = await provider.stateOf(providerId, signal);
  if (state === 'paused' && record.state === wanted) return;
  if (state !== 'running') throw notAlive(instance);
  await records.write(instance, { ...record, state: wanted });
  if (wanted === 'held') return;
  await provider.pause(providerId, signal);
  for (let polls = 0; polls < MAX_POLLS; polls++) {
    const now = await provider.stateOf(providerId, signal);
    if (now === 'gone') throw notAlive(instance);
    if (now === 'paused') return;
    await clock.sleep(POLL_MS, signal);
  }
  throw new TorporError(
    'unreachable',
    'The provider answered that it paused the sandbox, but the sandbox runs.',
  );
}

export async function captureInstance(
  ctx: RuntimeContext,
  instance: Instance,
  mode: CheckpointMode,
  staging: Staging,
  signal: AbortSignal,
): Promise<Captured> {
  signal.throwIfAborted();
  const record = await ctx.instances.require(instance, signal);
  if (record.state === 'frozen') return capturePaused(ctx, instance, record, mode, staging, signal);
  if (record.state !== 'held') throw new TorporError('conflict', 'Only a frozen instance can be captured.');
  const snapshotId = await ctx.snapshots.take(staging.checkpointId, record.providerId, signal);
  return captured({ is: 'snapshot', snapshotId }, mode);
}

/** The paused sandbox of the provider becomes the checkpoint. */
export async function capturePaused(
  { provider, records }: RuntimeContext,
  instance: Instance,
  record: InstanceRecord,
  mode: CheckpointMode,
  { checkpointId }: Staging,
  signal: AbortSignal,
): Promise<Captured> {
  const { providerId } = record;
  const state = await provider.stateOf(providerId, signal);
  if (state === 'gone') throw new TorporError('checkpoint_missing', 'The provider has no such sandbox.');
  if (state !== 'paused') throw new TorporError('unreachable', 'The provider shows the sandbox as running.');
  await records.writeCheckpoint(checkpointId, { providerId });
  // An earlier capture that was never sealed is dropped.
  if (record.captured !== null && record.captured !== checkpointId)
    await records.removeCheckpoint(record.captured);
  await records.write(instance, { ...record, state: 'frozen', captured: checkpointId });
  return captured({ is: 'paused', providerId }, mode);
}

export async function thawInstance(
  { provider, records, instances }: RuntimeContext,
  instance: Instance,
  signal: AbortSignal,
): Promise<void> {
  const record = await instances.require(instance, signal);
  const state = await provider.stateOf(record.providerId, signal);
  if (state === 'gone') throw notAlive(instance);
  if (record.state !== 'frozen' && record.state !== 'held') {
    if (state === 'paused') throw notAlive(instance);
    return;
  }
  const reached =
    state === 'running' && record.reached !== null
      ? record.reached
      : await provider.connect(record.providerId, 'restore', signal).catch((thrown: unknown) => {
          throw thrown instanceof TorporError && thrown.code === 'expired' ? notAlive(instance) : thrown;
        });
  if (record.captured !== null) await records.removeCheckpoint(record.captured);
  await records.write(instance, { ...record, reached, state: 'running', captured: null });
}

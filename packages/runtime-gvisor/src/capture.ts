/** Captures an instance for a checkpoint: its memory, if it is wanted, and its upper layer, which becomes a sealed layer. */
import { access } from 'node:fs/promises';
import { join } from 'node:path';
import type { Captured, Instance, LayerReference, Staging } from '@torpor/engine';
import type { LayerId } from '@torpor/layers';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';
import { type GvisorNeeds, layersPart, MEMORY, MEMORY_PARTS, writeSecrets } from './checkpoint-needs.ts';
import type { WrittenImage } from './image/images.ts';
import type { InstanceRecord } from './instance/instance-files.ts';
import type { RuntimeContext } from './runtime-context.ts';

/**
 * Captures a frozen instance: its memory, when `mode` asks for it, and its files. The instance stays frozen whatever
 * happens here. The engine seals the checkpoint from what this returns, and then commits it.
 */
export async function captureInstance(
  ctx: RuntimeContext,
  instance: Instance,
  record: InstanceRecord,
  mode: 'memory' | 'files',
  staging: Staging,
  signal: AbortSignal,
): Promise<Captured> {
  if (mode === 'files') {
    const layers = await sealFiles(ctx, instance, record, staging, signal);
    return describeCapture(ctx, record, layers, staging.checkpointId, false);
  }
  const image = await writeMemory(ctx, record, staging, signal);
  const tasks = [
    packMemory(ctx, image, staging, signal),
    sealFiles(ctx, instance, record, staging, signal),
  ] as const;
  // Neither task outlives the failure of the other.
  await Promise.allSettled(tasks);
  const [, layers] = await Promise.all(tasks).catch(async (thrown: unknown) => {
    await ctx.images.evict(staging.checkpointId);
    throw thrown;
  });
  return describeCapture(ctx, record, layers, staging.checkpointId, true);
}

/** How often connections that are still open are reset again, and how long a reset may take to arrive. */
const RESET_TRIES = 10;
const RESET_ARRIVES_MS = 20;

/**
 * Has the sandbox write its memory image, unpacked.
 *
 * Connections to the outside are reset before an image is written, so that both ends learn of it. runsc (2026) would
 * restore them as closed: the program would read an ordinary end of stream and take half an answer for a whole one, and
 * the other end would hear nothing; an older runsc cannot restore them.
 *
 * The sandbox itself writes the image, into memory that counts as its own. Its limits are therefore lifted here, and set
 * again when it is thawed.
 */
export async function writeMemory(
  ctx: RuntimeContext,
  { container, credential }: Pick<InstanceRecord, 'container' | 'credential'>,
  { checkpointId, path }: Staging,
  signal: AbortSignal,
): Promise<WrittenImage> {
  const { images, runsc, cgroups } = ctx;
  await resetConnections(ctx, container.id, signal);
  await writeSecrets(path, { credential });
  await cgroups?.limit(container.id, {});
  const bytes = await runsc.memoryBytes(container.id);
  return images.write({ id: checkpointId, bytes }, (image) => runsc.checkpoint(container, image, signal));
}

/** Packs the memory image into the checkpoint. */
export function packMemory(
  { images }: RuntimeContext,
  image: WrittenImage,
  { path }: Staging,
  signal: AbortSignal,
): Promise<void> {
  return images.pack(image, join(path, MEMORY), signal);
}

async function resetConnections(
  { network, clock }: RuntimeContext,
  name: string,
  signal: AbortSignal,
): Promise<void> {
  for (let tries = 1; ; tries++) {
    const open = await network.reset(name);
    if (open.length === 0) return;
    if (tries === RESET_TRIES) {
      throw new TorporError('conflict', 'The sandbox has connections that could not be ended.', {
        details: { connections: open.slice(0, 10) },
      });
    }
    await clock.sleep(RESET_ARRIVES_MS, signal);
  }
}

/**
 * Seals the upper layer of an instance where it lies. The instance's record names the checkpoint that the layer is sealed for
 * until it is known whether that checkpoint was committed. The claim is written before the layer is sealed. After a crash,
 * every sealed layer can therefore be traced to a checkpoint.
 */
async function sealFiles(
  { files, layers, layerStore }: RuntimeContext,
  instance: Instance,
  record: InstanceRecord,
  { checkpointId: checkpoint, path }: Staging,
  signal: AbortSignal,
): Promise<LayerReference[]> {
  // Without its staging directory the checkpoint cannot be sealed, and must not claim anything.
  await mapWriteErrors(path, () => access(path));
  const { upper, merged } = record;
  // The merged layer stands for all lower layers but the last one, which is the template's.
  const under = merged === null ? record.lower : record.lower.slice(-1);
  const own: LayerId[] = merged === null ? [upper] : [upper, merged];
  await files.write(instance, { ...record, sealedFor: checkpoint });
  await layerStore.claim(checkpoint, {
    layers: [...own, ...under.map(({ id }) => id)],
    runsc: record.runsc,
  });
  const sealed = await layers.seal(upper, signal);
  const sealedUpper: LayerReference = { id: upper, nonce: sealed.nonce, owner: checkpoint };
  if (merged === null) return [sealedUpper, ...under];
  const { nonce } = await layers.inspect(merged);
  return [sealedUpper, { id: merged, nonce, owner: checkpoint }, ...under];
}

/** Captures the files of an instance whose container is dead: its upper layer, without memory. */
export async function captureDeadInstance(
  ctx: RuntimeContext,
  instance: Instance,
  record: InstanceRecord,
  staging: Staging,
  signal: AbortSignal,
): Promise<Captured> {
  await ctx.runsc.killProcesses(record.container, signal);
  await ctx.layers.unmount(record.rootfs);
  const layers = await sealFiles(ctx, instance, record, staging, signal);
  return describeCapture(ctx, record, layers, staging.checkpointId, false);
}

export function describeCapture(
  { processor }: RuntimeContext,
  { root, tools, system, runsc }: Pick<InstanceRecord, 'root' | 'tools' | 'system' | 'runsc'>,
  layers: readonly LayerReference[],
  checkpoint: CheckpointId,
  memory: boolean,
  template: string | null = null,
): Captured {
  const needs: GvisorNeeds = { version: 1, template, root, layers, runsc, processor, tools, system };
  const owners = new Set(layers.map(({ owner }) => owner));
  owners.delete(checkpoint);
  return {
    parts: { files: true, memory },
    needs: { ...needs },
    contents: memory ? [...MEMORY_PARTS, layersPart(layers)] : [layersPart(layers)],
    dependsOn: [...owners],
    external: null,
  };
}

/** Making a checkpoint of an instance: its memory, if it is wanted, and the upper layer that becomes a sealed one. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Captured, Instance, Staging } from '@torpor/engine';
import type { LayerId } from '@torpor/layers';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';
import {
  type GvisorNeeds,
  LAYERS_NOTE,
  MEMORY,
  type StackedLayer,
  writeSecrets,
} from './checkpoint-needs.ts';
import type { InstanceRecord } from './instance/instance-files.ts';
import type { RuntimeContext } from './runtime-context.ts';

/** The instance is frozen, and stays so whatever happens here. */
export async function captureInstance(
  ctx: RuntimeContext,
  instance: Instance,
  record: InstanceRecord,
  mode: 'memory' | 'files',
  staging: Staging,
  signal: AbortSignal,
): Promise<Captured> {
  const sealFiles = () => sealUpper(ctx, instance, record, staging, signal);
  const layers =
    mode === 'memory' ? await writeImage(ctx, record, staging, sealFiles, signal) : await sealFiles();
  return captured(ctx, record, layers, staging.checkpointId, mode === 'memory');
}

/** How often what is still open is reset again, and how long that may take to arrive. */
const RESET_TRIES = 10;
const RESET_ARRIVES_MS = 20;

/**
 * An image cannot hold connections to the outside: a program that had one would not get over it. So they are
 * reset first, by us, and both ends hear of it. While it is packed, there is time for something else.
 *
 * The sandbox itself writes it, into memory that counts as its own, so that its limits do not hold until it is thawed.
 */
export async function writeImage<T>(
  ctx: RuntimeContext,
  { container, credential }: Pick<InstanceRecord, 'container' | 'credential'>,
  { checkpointId, path }: Staging,
  meanwhile: () => Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  const { images, runsc, cgroups } = ctx;
  await disconnect(ctx, container.id, signal);
  await writeSecrets(path, { credential });
  await cgroups?.limit(container.id, {});
  const bytes = await runsc.memoryBytes(container.id);
  const write = (image: string) => runsc.checkpoint(container, image, signal);
  return images.write({ id: checkpointId, packed: join(path, MEMORY), bytes }, write, meanwhile, signal);
}

async function disconnect(
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

/** Sealed in place: the record says for whom, until it is known whether that checkpoint came to be. */
async function sealUpper(
  { files, layers, owned }: RuntimeContext,
  instance: Instance,
  record: InstanceRecord,
  { checkpointId: checkpoint, path }: Staging,
  signal: AbortSignal,
): Promise<StackedLayer[]> {
  const { upper, merged } = record;
  const own: LayerId[] = merged === null ? [upper] : [upper, merged];
  // For people who find the checkpoint and wonder where its files are.
  const note = join(path, LAYERS_NOTE);
  await mapWriteErrors(note, () =>
    writeFile(note, JSON.stringify([...own, ...record.lower.map(({ id }) => id)])),
  );
  // A checkpoint it was sealed for before did not come to be, and must take nothing with it when it is discarded.
  if (record.sealedFor !== null && record.sealedFor !== checkpoint) await owned.forget(record.sealedFor);
  await files.write(instance, { ...record, sealedFor: checkpoint });
  await owned.set(checkpoint, { layers: own, runsc: record.runsc });
  const sealed = await layers.seal(upper, signal);
  const top: StackedLayer = { id: upper, nonce: sealed.nonce, owner: checkpoint };
  if (merged === null) return [top, ...record.lower];
  const { nonce } = await layers.inspect(merged);
  return [top, { id: merged, nonce, owner: checkpoint }, ...record.lower.slice(-1)];
}

/** For what is dead: its upper as it is, without memory. */
export async function salvageInstance(
  ctx: RuntimeContext,
  instance: Instance,
  record: InstanceRecord,
  staging: Staging,
  signal: AbortSignal,
): Promise<Captured> {
  await ctx.runsc.end(record.container, signal);
  await ctx.layers.unmount(record.rootfs);
  const layers = await sealUpper(ctx, instance, record, staging, signal);
  return captured(ctx, record, layers, staging.checkpointId, false);
}

export function captured(
  { processor }: RuntimeContext,
  { root, tools, system, runsc }: Pick<InstanceRecord, 'root' | 'tools' | 'system' | 'runsc'>,
  layers: readonly StackedLayer[],
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
    dependsOn: [...owners],
    external: null,
  };
}

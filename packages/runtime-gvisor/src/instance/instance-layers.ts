/** The writable layer of an instance, and the merged one beside it. */
import { access } from 'node:fs/promises';
import type { Instance } from '@torpor/engine';
import { isMissing } from '@torpor/host';
import type { LayerId } from '@torpor/layers';
import type { RuntimeContext } from '../runtime-context.ts';
import type { InstanceFiles, InstanceRecord } from './instance-files.ts';

/** Whether the files that the instance has written are still there. */
export async function hasFiles({ layers }: RuntimeContext, { upper }: InstanceRecord): Promise<boolean> {
  return access(layers.path(upper)).then(
    () => true,
    (thrown: unknown) => {
      if (isMissing(thrown)) return false;
      throw thrown;
    },
  );
}

/** The layers that the roots of running sandboxes are mounted from; undefined when the record of a sandbox cannot be read. */
export async function layersInUse(files: InstanceFiles): Promise<ReadonlySet<LayerId> | undefined> {
  const layers = new Set<LayerId>();
  for await (const instance of files.list()) {
    const record = files.read(instance);
    if (record === undefined) return undefined;
    const { upper, merged, lower } = record;
    for (const layer of [upper, merged, ...lower.map(({ id }) => id)]) if (layer !== null) layers.add(layer);
  }
  return layers;
}

/**
 * Makes the layer writable again that was sealed for a checkpoint which was not committed. The claim of that checkpoint is
 * removed with the checkpoint. Until then it has no effect, because the instance uses the layer.
 */
export async function reopenUpper(
  { files, layers }: RuntimeContext,
  instance: Instance,
  record: InstanceRecord,
): Promise<void> {
  if (record.sealedFor === null) return;
  await layers.reopen(record.upper);
  await files.write(instance, { ...record, sealedFor: null });
}

/**
 * Removes the layers of a destroyed instance, except those that a checkpoint claims: they go with the checkpoint. Returns
 * whether the instance was captured for a checkpoint that is still there.
 */
export async function removeInstanceLayers(
  { layers, layerStore }: RuntimeContext,
  record: InstanceRecord,
): Promise<boolean> {
  for (const layer of [record.upper, record.merged]) {
    if (layer !== null && !(await layerStore.isClaimed(layer))) await layers.remove(layer);
  }
  return record.sealedFor !== null && layerStore.hasClaim(record.sealedFor);
}

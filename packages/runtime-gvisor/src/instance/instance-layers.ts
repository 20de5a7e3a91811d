/** The layers of an instance: the writable one, the merged one beside it, those below, and the page layers of its memory. */
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

/**
 * The layers that the roots of instances are mounted from, and those that their next checkpoints may refer to, whether the
 * instances run or are warm. Undefined when a record cannot be read.
 */
export async function layersInUse(files: InstanceFiles): Promise<ReadonlySet<LayerId> | undefined> {
  const layers = new Set<LayerId>();
  for await (const instance of files.list()) {
    const record = files.read(instance);
    if (record === undefined) {
      // It may have been removed since it was listed.
      if (await files.has(instance)) return undefined;
      continue;
    }
    for (const layer of [record.upper, record.merged, ...sharedLayers(record)])
      if (layer !== null) layers.add(layer);
  }
  return layers;
}

/** The layers that an instance uses together with checkpoints and other instances. */
export function sharedLayers({ lower, pages }: InstanceRecord): LayerId[] {
  return [...lower, ...pages].map(({ id }) => id);
}

/**
 * Makes a captured instance writable again, because its checkpoint was not committed. If the upper layer was sealed for the
 * checkpoint, the seal is removed. If a copy was sealed, the copy stays until the checkpoint is removed. The claim of the
 * checkpoint is removed with the checkpoint too; until then it does no harm, because layers in use are never removed.
 */
export async function reopenUpper(
  { files, layers }: RuntimeContext,
  instance: Instance,
  record: InstanceRecord,
): Promise<void> {
  if (record.capturedFor === null) return;
  if (record.capturedFor.sealed === 'upper') await layers.reopen(record.upper);
  await files.write(instance, { ...record, capturedFor: null });
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
  return record.capturedFor !== null && layerStore.hasClaim(record.capturedFor.checkpoint);
}

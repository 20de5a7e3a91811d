/** The writable layer of an instance, and the merged one beside it. */
import { access } from 'node:fs/promises';
import type { Instance } from '@torpor/engine';
import { isMissing } from '@torpor/host';
import type { LayerId } from '@torpor/layers';
import type { RuntimeContext } from '../runtime-context.ts';
import type { InstanceRecord } from './instance-files.ts';

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

/** Whether an instance has this layer as its writable or as its merged one. */
export async function isLayerInUse({ files }: RuntimeContext, layer: LayerId): Promise<boolean> {
  for await (const instance of files.list()) {
    const record = files.read(instance);
    if (record?.upper === layer || record?.merged === layer) return true;
  }
  return false;
}

/** Makes the layer writable again that was sealed for a checkpoint which was not committed. */
export async function reopenUpper(
  { files, owned, layers }: RuntimeContext,
  instance: Instance,
  record: InstanceRecord,
): Promise<void> {
  if (record.sealedFor === null) return;
  await layers.reopen(record.upper);
  await owned.forget(record.sealedFor);
  await files.write(instance, { ...record, sealedFor: null });
}

/** Removes the layers of a destroyed instance. Returns whether a checkpoint owns some of them, which stay. */
export async function removeInstanceLayers(
  { owned, layers }: RuntimeContext,
  record: InstanceRecord,
): Promise<boolean> {
  const kept = record.sealedFor === null ? [] : await owned.of(record.sealedFor);
  for (const layer of [record.upper, record.merged]) {
    if (layer !== null && !kept.includes(layer)) await layers.remove(layer);
  }
  return kept.length > 0;
}

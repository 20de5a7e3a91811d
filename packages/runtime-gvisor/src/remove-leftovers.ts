import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { tearDownContainer } from './container/container-setup.ts';
import { pathsIn } from './instance/instance-files.ts';
import type { RuntimeContext } from './runtime-context.ts';

/**
 * Removes containers that an earlier server had pre-created, or was booting a template in, and layers that neither an
 * instance nor a checkpoint refers to. When the record of an instance cannot be read, any layer and any running container
 * may belong to that instance: then these stay.
 */
export async function removeLeftovers(ctx: RuntimeContext, signal: AbortSignal): Promise<void> {
  const { files, layers, owned, binaries } = ctx;
  const runningBinaries = new Set<string>();
  const usedContainers = new Set<string>();
  const usedLayers = new Set<string>();
  let isEveryRecordReadable = true;
  for await (const instance of files.list()) {
    const record = files.read(instance);
    isEveryRecordReadable &&= record !== undefined;
    if (record === undefined) continue;
    usedContainers.add(record.container.id);
    runningBinaries.add(record.runsc);
    const { upper, merged, lower } = record;
    for (const layer of [upper, merged, ...lower.map(({ id }) => id)])
      if (layer !== null) usedLayers.add(layer);
  }
  const isUsed = async (name: string) =>
    usedContainers.has(name) || (!isEveryRecordReadable && (await mayRun(ctx, name)));
  await removePrepared(ctx, isUsed, signal);
  const ownedByAll = await owned.all();
  const ownedLayers = ownedByAll && new Set(ownedByAll.flatMap(({ layers: own }) => own));
  for await (const { id, state } of layers.list()) {
    // The server may have ended right after a merge, before a record named the merged layer.
    const isOwned = state === 'sealed' && ownedLayers?.has(id) !== false;
    const isUnused = isEveryRecordReadable && !usedLayers.has(id) && !isOwned;
    if (state === 'removing' || state === 'making' || isUnused) await layers.remove(id);
  }
  if (isEveryRecordReadable && ownedByAll !== undefined) {
    const ownedBinaries = ownedByAll.flatMap(({ runsc }) => runsc ?? []);
    await binaries.removeUnused(new Set([...runningBinaries, ...ownedBinaries]));
  }
}

async function mayRun({ runsc }: RuntimeContext, name: string): Promise<boolean> {
  return runsc.recordedState(name).then(
    ({ is }) => is === 'running' || is === 'paused',
    () => true,
  );
}

async function removePrepared(
  ctx: RuntimeContext,
  isUsed: (name: string) => Promise<boolean>,
  signal: AbortSignal,
): Promise<void> {
  const { preparedDir, tag, network, runsc, cgroups } = ctx;
  const prepared = new RegExp(`^${tag}-(berth|template)-([0-9a-z]+)$`);
  const names = [await runsc.list(), await network.list(), (await cgroups?.list()) ?? []].flat();
  const numbers = [
    ...names.flatMap((name) => prepared.exec(name)?.[2] ?? []),
    ...(await readdir(preparedDir)),
  ];
  for (const number of new Set(numbers)) {
    // An instance that took a pre-created container keeps its directory until the instance is destroyed.
    if (await isUsed(`${tag}-berth-${number}`)) continue;
    const directory = join(preparedDir, number);
    const { bundle, rootfs } = pathsIn(directory);
    for (const kind of ['berth', 'template']) {
      const name = `${tag}-${kind}-${number}`;
      if (!(await isUsed(name))) await tearDownContainer(ctx, { name, directory, bundle, rootfs }, signal);
    }
  }
}

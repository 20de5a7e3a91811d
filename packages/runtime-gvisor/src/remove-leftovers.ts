import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { hostMountNamespace, parseMounts } from '@torpor/host';
import { tearDownContainer } from './container/container-setup.ts';
import { pathsIn } from './instance/instance-files.ts';
import type { RuntimeContext } from './runtime-context.ts';

/**
 * Removes containers that an earlier server had pre-created, or was booting a template in, layers that neither an instance
 * nor a checkpoint needs, and programs and tools that neither uses. When the record of an instance cannot be read, any layer,
 * any program and any running container may belong to that instance: then these stay.
 */
export async function removeLeftovers(ctx: RuntimeContext, signal: AbortSignal): Promise<void> {
  const { files, layerStore, binaries } = ctx;
  const usedBinaries = new Set<string>();
  const usedTools = new Set([ctx.tools.fingerprint]);
  const usedContainers = new Set<string>();
  let isEveryRecordReadable = true;
  for await (const instance of files.list()) {
    const record = files.read(instance);
    isEveryRecordReadable &&= record !== undefined;
    if (record === undefined) continue;
    usedContainers.add(record.container.id);
    usedBinaries.add(record.runsc);
    usedTools.add(record.tools);
  }
  const isUsed = async (name: string) =>
    usedContainers.has(name) || (!isEveryRecordReadable && (await mayRun(ctx, name)));
  await removeUnassigned(ctx, isUsed, signal);
  await layerStore.sweep();
  if (!isEveryRecordReadable) return;
  await binaries.removeUnused(usedBinaries);
  await removeUnusedTools(ctx, usedTools);
}

/**
 * Tools are also used while a bind mount has them as its source, whatever the records say: files of the tools that were
 * current when an instance started cover files of the host in that instance. Bind mounts end with the last instance.
 */
async function removeUnusedTools(
  { layerStore, mounts }: RuntimeContext,
  used: ReadonlySet<string>,
): Promise<void> {
  const tables = [mounts.mountinfo(), hostMountNamespace.mountinfo()];
  const sources = tables.flatMap(parseMounts).flatMap(({ root }) => root.split('/'));
  await layerStore.programs.sweep('tools', new Set([...used, ...sources]));
}

async function mayRun({ runsc }: RuntimeContext, name: string): Promise<boolean> {
  return runsc.recordedState(name).then(
    ({ is }) => is === 'running' || is === 'frozen',
    () => true,
  );
}

async function removeUnassigned(
  ctx: RuntimeContext,
  isUsed: (name: string) => Promise<boolean>,
  signal: AbortSignal,
): Promise<void> {
  const { unassignedDir, serverTag, network, runsc, cgroups } = ctx;
  const unassigned = new RegExp(`^${serverTag}-(berth|template)-([0-9a-z]+)$`);
  const names = [await runsc.list(), await network.list(), (await cgroups?.list()) ?? []].flat();
  const numbers = [
    ...names.flatMap((name) => unassigned.exec(name)?.[2] ?? []),
    ...(await readdir(unassignedDir)),
  ];
  for (const number of new Set(numbers)) {
    // An instance that took a pre-created container keeps its directory until the instance is destroyed.
    if (await isUsed(`${serverTag}-berth-${number}`)) continue;
    const directory = join(unassignedDir, number);
    const { bundle, rootfs } = pathsIn(directory);
    for (const kind of ['berth', 'template']) {
      const name = `${serverTag}-${kind}-${number}`;
      if (!(await isUsed(name))) await tearDownContainer(ctx, { name, directory, bundle, rootfs }, signal);
    }
  }
}

/** Opens the gVisor runtime over a data directory, and cleans up what an earlier server has left in it. */
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, type Runtime, systemClock } from '@torpor/engine';
import { mountsBelow, writing } from '@torpor/host';
import { openOverlayLayers } from '@torpor/layers';
import { openSandboxNetwork, type SandboxNetworkOptions } from '@torpor/network';
import { DEFAULT_RUNTIME_SETTINGS, type RuntimeSettings } from '@torpor/runtime-shared';
import { RunscBinaries } from './binaries/runsc-binaries.ts';
import { Cgroups, findCgroups } from './container/cgroups.ts';
import { tearDownContainer } from './container/container-setup.ts';
import { HostResourcePool } from './container/host-resource-pool.ts';
import { runDirectory } from './container/run-directory.ts';
import { WarmPool } from './container/warm-pool.ts';
import { BaseSystems } from './guest/base-system.ts';
import { findTini, guestTools } from './guest/guest-tools.ts';
import { ReadOnlyView } from './guest/read-only-view.ts';
import { GvisorRuntime } from './gvisor-runtime.ts';
import { machineIdentity } from './host-checks/machine-identity.ts';
import { memoryForImages } from './image/image-memory.ts';
import { Images } from './image/images.ts';
import { InstanceFiles, pathsIn } from './instance/instance-files.ts';
import { serverTag } from './instance/instance-names.ts';
import { openMountNamespace } from './mounts/mount-namespace.ts';
import { OwnedLayers } from './owned-layers.ts';
import { Runsc } from './runsc/runsc.ts';
import type { RuntimeContext } from './runtime-context.ts';

export interface GvisorRuntimeOptions {
  readonly dataDir: string;
  /** The directory of the agent's bundle. */
  readonly agentDir: string;
  /** The runsc for new sandboxes. */
  readonly runsc: { readonly program: string; readonly version: string };
  /** A day such as 20250101: memory that an older runsc wrote is not restored. */
  readonly oldestRunsc?: number | undefined;
  readonly clock?: Clock;
  readonly settings?: RuntimeSettings;
  readonly node?: string;
  /** How many pre-created containers may wait. */
  readonly warmPoolSize?: number | undefined;
  /** How many host resources may wait. */
  readonly hostResourcePoolSize?: number;
  readonly network?: Partial<Omit<SandboxNetworkOptions, 'owner'>>;
  readonly report?: RuntimeContext['report'];
}

export interface OpenedRuntime extends Runtime {
  /** Running sandboxes go on. Removes everything that was made in advance. */
  close(): Promise<void>;
  /** New sandboxes use this runsc from now on. */
  adoptRunsc(runsc: { readonly program: string; readonly version: string }): Promise<void>;
}

export async function gvisorRuntime(options: GvisorRuntimeOptions): Promise<OpenedRuntime> {
  const { agentDir, clock = systemClock, node = process.execPath, report = () => {} } = options;
  const { settings = DEFAULT_RUNTIME_SETTINGS } = options;
  await writing(options.dataDir, () => mkdir(options.dataDir, { recursive: true, mode: 0o700 }));
  const dataDir = await realpath(options.dataDir);
  const directory = join(dataDir, 'gvisor');
  const tag = serverTag(dataDir);
  const signal = new AbortController().signal;
  const at = (name: string) => join(directory, name);
  // The name `berths` is part of the format of the data directory.
  const preparedDir = at('berths');
  const instances = at('instances');
  for (const path of [directory, preparedDir, instances, at('layers')])
    await writing(path, () => mkdir(path, { recursive: true, mode: 0o700 }));
  const toolsDir = at('guest');
  const tools = await guestTools({ toolsDir, node, agentDir, tini: await findTini() });
  const runDir = runDirectory(tag);
  const root = join(runDir, 'runsc');
  await mkdir(root, { recursive: true, mode: 0o700 });
  const refusals: RuntimeContext['refusals'] = {
    listener: (refusal) => report('a connection was refused', { ...refusal }),
  };
  const network = await openSandboxNetwork({
    owner: { tag, dataDir },
    onRefusal: (refusal) => refusals.listener(refusal),
    clock,
    ...options.network,
  });
  // After the network: its first namespace makes the directory of network namespaces a shared mount, and only then do
  // later network namespaces appear in this mount namespace.
  const mounts = await openMountNamespace(
    { runDir: await realpath(runDir), mounted: await realpath(directory) },
    signal,
  );
  const view = new ReadOnlyView(at('view'), mounts);
  const ctx: RuntimeContext = {
    refusals,
    tag,
    directory,
    runDir,
    files: new InstanceFiles(instances),
    preparedDir,
    layers: await openOverlayLayers({ root: at('layers'), clock, randomBytes, mounts }),
    images: new Images({ memory: await memoryForImages(tag), disk: at('images') }),
    owned: new OwnedLayers(at('owned')),
    network,
    mounts,
    runsc: new Runsc({
      program: options.runsc.program,
      root,
      network: 'sandbox',
      mounts,
      ignoreCgroups: true,
      discardOutput: true,
      clock,
      settings,
    }),
    cgroups: await openCgroups(tag),
    view,
    base: new BaseSystems({ view, tools, clock }),
    tools,
    toolsDir,
    binaries: new RunscBinaries(at('runsc'), options.oldestRunsc),
    processor: (await machineIdentity()).processor,
    clock,
    settings,
    report,
  };
  await ctx.binaries.open(options.runsc);
  await ctx.files.open();
  await ctx.owned.open();
  await ctx.images.open();
  await removeLeftovers(ctx, signal);
  await reopenNetworks(ctx);
  await reportUnmounted(ctx);
  const pools = {
    warmPool: new WarmPool(ctx, options.warmPoolSize),
    hostResourcePool: new HostResourcePool(ctx, options.hostResourcePoolSize),
  };
  const runtime = new GvisorRuntime(ctx, pools);
  await runtime.open();
  return runtime;
}

async function openCgroups(tag: string): Promise<Cgroups | null> {
  const host = await findCgroups();
  if (host === null) return null;
  const cgroups = new Cgroups(host, `torpor-${tag}`);
  return cgroups.open().then(
    () => cgroups,
    () => null,
  );
}

/**
 * Removes containers that an earlier server had pre-created, or was booting a template in, and layers that neither an
 * instance nor a checkpoint refers to. When the record of an instance cannot be read, any layer and any running container
 * may belong to that instance: then these stay.
 */
async function removeLeftovers(ctx: RuntimeContext, signal: AbortSignal): Promise<void> {
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

/** Gives sandboxes that went on running without a server their connections to the outside back. */
async function reopenNetworks({ files, network }: RuntimeContext): Promise<void> {
  for await (const instance of files.list()) {
    const record = files.read(instance);
    if (record !== undefined) await network.reopen(record.container.id, record.network);
  }
}

/**
 * The root of a running sandbox may have been unmounted by hand (`umount -l`). The gofer has a mount of its own, so the
 * sandbox runs on with all its files, and pauses and wakes normally. The root is not mounted again: two mounts with the
 * same upper layer would corrupt each other's files.
 */
async function reportUnmounted({ files, mounts, report }: RuntimeContext): Promise<void> {
  for await (const instance of files.list()) {
    const record = files.read(instance);
    if (record !== undefined && mountsBelow(mounts.table(), record.rootfs).length === 0)
      report('the root of a sandbox was unmounted; the sandbox runs on with its files', { ...instance });
  }
}

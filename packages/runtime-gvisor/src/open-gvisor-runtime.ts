/** Opens the gVisor runtime over a data directory, and cleans up what an earlier server has left in it. */
import { mkdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type Clock,
  type FaultPoints,
  noFaults,
  type Runtime,
  type SecretSource,
  systemClock,
} from '@torpor/engine';
import { mountsBelow } from '@torpor/host';
import { type LayerStore, type Layers, randomProject } from '@torpor/layers';
import { openSandboxNetwork, type SandboxNetworkOptions } from '@torpor/network';
import { DEFAULT_RUNTIME_SETTINGS, mapWriteErrors, type RuntimeSettings } from '@torpor/runtime-shared';
import { RunscBinaries } from './binaries/runsc-binaries.ts';
import { budgetBytes, MemoryBudget } from './caches/memory-budget.ts';
import { openCgroups } from './container/cgroups.ts';
import { HostResourcePool } from './container/host-resource-pool.ts';
import { PreCreatedContainers } from './container/pre-created-containers.ts';
import { runDirectory } from './container/run-directory.ts';
import { BaseSystemCache } from './guest/base-system.ts';
import { findTini, guestTools } from './guest/guest-tools.ts';
import { ReadOnlyBinds } from './guest/read-only-binds.ts';
import { GvisorRuntime } from './gvisor-runtime.ts';
import { machineIdentity } from './host-checks/machine-identity.ts';
import { memoryForImages } from './image/image-memory.ts';
import { Images } from './image/images.ts';
import { InstanceFiles } from './instance/instance-files.ts';
import { layersInUse } from './instance/instance-layers.ts';
import { serverTag } from './instance/instance-names.ts';
import { DiskProjects } from './limits/disk-projects.ts';
import { openMountNamespace } from './mounts/mount-namespace.ts';
import { removeLeftovers } from './remove-leftovers.ts';
import { Runsc } from './runsc/runsc.ts';
import type { RuntimeContext } from './runtime-context.ts';

export interface GvisorRuntimeOptions {
  readonly dataDir: string;
  /** Of the checkpoint store. Overlay layers must lie on a file system that overlayfs takes as an upper. */
  readonly layerStore: LayerStore;
  /** The directory of the agent's bundle. */
  readonly agentDir: string;
  /** The runsc for new sandboxes. */
  readonly runsc: { readonly program: string; readonly version: string };
  /** A day such as 20250101: memory that an older runsc wrote is not restored. */
  readonly oldestRunsc?: number | undefined;
  /** Finds the root of `base` that was made on this host; `base` is a view of the host when absent. */
  readonly ownBase?: RuntimeContext['ownBase'] | undefined;
  readonly clock?: Clock;
  readonly settings?: RuntimeSettings;
  readonly node?: string;
  /** How many pre-created containers may wait. */
  readonly warmPoolSize?: number | undefined;
  /** How many host resources may wait. */
  readonly hostResourcePoolSize?: number;
  readonly network?: Partial<Omit<SandboxNetworkOptions, 'owner'>>;
  /** The secrets that sandboxes may use. Absent: there are none. */
  readonly secrets?: SecretSource | undefined;
  readonly faults?: FaultPoints;
  readonly report?: RuntimeContext['report'];
}

export interface OpenedRuntime extends Runtime {
  /** Running sandboxes go on. Ends paused sandboxes in memory, and removes everything that was made in advance. */
  close(): Promise<void>;
  /** New sandboxes use this runsc from now on. */
  adoptRunsc(runsc: { readonly program: string; readonly version: string }): Promise<void>;
}

export async function gvisorRuntime(options: GvisorRuntimeOptions): Promise<OpenedRuntime> {
  const { agentDir, clock = systemClock, node = process.execPath, report = () => {} } = options;
  const { settings = DEFAULT_RUNTIME_SETTINGS } = options;
  await mapWriteErrors(options.dataDir, () => mkdir(options.dataDir, { recursive: true, mode: 0o700 }));
  const dataDir = await realpath(options.dataDir);
  const directory = join(dataDir, 'gvisor');
  const tag = serverTag(dataDir);
  const signal = new AbortController().signal;
  const at = (name: string) => join(directory, name);
  // The name `berths` is part of the format of the data directory.
  const unassignedDir = at('berths');
  const instances = at('instances');
  for (const path of [directory, unassignedDir, instances])
    await mapWriteErrors(path, () => mkdir(path, { recursive: true, mode: 0o700 }));
  const { layerStore } = options;
  const { programs } = layerStore;
  const tools = await guestTools({ programs, node, agentDir, tini: await findTini() });
  const runDir = runDirectory(tag);
  const root = join(runDir, 'runsc');
  await mkdir(root, { recursive: true, mode: 0o700 });
  const refusals: RuntimeContext['refusals'] = {
    listener: (refusal) => report('a connection was refused', { ...refusal }),
  };
  const owners: RuntimeContext['owners'] = { find: async () => undefined };
  const network = await openSandboxNetwork({
    owner: { tag, dataDir },
    onRefusal: (refusal) => refusals.listener(refusal),
    findSecrets: async (container, names) => {
      const instance = await owners.find(container);
      if (instance === undefined || options.secrets === undefined) return [];
      return options.secrets.find(instance.sandboxId, names);
    },
    clock,
    ...options.network,
  });
  // After the network: its first namespace makes the directory of network namespaces a shared mount, and only then do
  // later network namespaces appear in this mount namespace.
  const mounts = await openMountNamespace(
    { runDir: await realpath(runDir), mounted: await realpath(directory) },
    signal,
  );
  // The name `view` is part of the format of the data directory.
  const readOnlyBinds = new ReadOnlyBinds(at('view'), mounts);
  layerStore.layers.setMountNamespace(mounts);
  const files = new InstanceFiles(instances);
  const warmMemory = new MemoryBudget(budgetBytes(settings.warmMemoryMb));
  const ctx: RuntimeContext = {
    refusals,
    owners,
    serverTag: tag,
    directory,
    runDir,
    files,
    unassignedDir,
    layerStore,
    layers: layerStore.layers,
    leaveLayerStore: layerStore.addUsageSource(() => layersInUse(files)),
    images: new Images({ memory: await memoryForImages(tag), disk: at('images') }, warmMemory),
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
    cgroups: await openCgroups(`torpor-${tag}`, report),
    diskProjects: await openDiskProjects(at('projects'), layerStore.layers),
    readOnlyBinds,
    base: new BaseSystemCache({ readOnlyBinds, tools, clock }),
    ownBase: options.ownBase ?? null,
    tools,
    binaries: new RunscBinaries(programs, options.oldestRunsc),
    processor: (await machineIdentity()).processor,
    faults: options.faults ?? noFaults,
    warmMemory,
    cannotContinue: new Set(),
    clock,
    settings,
    report,
  };
  await ctx.binaries.open(options.runsc);
  await ctx.files.open();
  await ctx.images.open();
  await removeLeftovers(ctx, signal);
  await reopenNetworks(ctx);
  await reportUnmounted(ctx);
  const pools = {
    preCreated: new PreCreatedContainers(ctx, options.warmPoolSize),
    hostResourcePool: new HostResourcePool(ctx, options.hostResourcePoolSize),
  };
  const runtime = new GvisorRuntime(ctx, pools);
  await runtime.open();
  return runtime;
}

async function openDiskProjects(directory: string, layers: Layers): Promise<DiskProjects | null> {
  const { quotas } = await layers.projectQuotas();
  if (quotas === null) return null;
  const projects = new DiskProjects({ directory, quotas, layers, newProject: randomProject });
  await projects.open();
  return projects;
}

/**
 * Gives sandboxes that went on running without a server their connections to the outside back. A warm instance is stopped
 * and uses no connection; its network is closed again when it is kept.
 */
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
    if (record !== undefined && mountsBelow(mounts.mountinfo(), record.rootfs).length === 0)
      report('the root of a sandbox was unmounted; the sandbox runs on with its files', { ...instance });
  }
}

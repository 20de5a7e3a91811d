/** Opens the gVisor runtime over a data directory, over whatever an earlier server has left in it. */
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
  /** A usable runsc, for new sandboxes. */
  readonly runsc: { readonly program: string; readonly version: string };
  /** Memory that an older runsc wrote is not restored: a day such as 20250101. */
  readonly oldestRunsc?: number | undefined;
  readonly clock?: Clock;
  readonly settings?: RuntimeSettings;
  readonly node?: string;
  /** How many containers may wait for somebody to need them. */
  readonly warmPoolSize?: number | undefined;
  /** How many moorings may. */
  readonly hostResourcePoolSize?: number;
  readonly network?: Partial<Omit<SandboxNetworkOptions, 'owner'>>;
  readonly report?: RuntimeContext['report'];
}

/** A runtime that can be closed: sandboxes go on running, what was only made ahead is taken away. */
export interface OpenedRuntime extends Runtime {
  close(): Promise<void>;
  /** New sandboxes use this runsc from here on. */
  adoptRunsc(runsc: { readonly program: string; readonly version: string }): Promise<void>;
}

export async function gvisorRuntime(options: GvisorRuntimeOptions): Promise<OpenedRuntime> {
  const { agentDir, clock = systemClock, node = process.execPath, report = () => {} } = options;
  const { settings = DEFAULT_RUNTIME_SETTINGS } = options;
  await writing(options.dataDir, () => mkdir(options.dataDir, { recursive: true, mode: 0o700 }));
  const dataDir = await realpath(options.dataDir);
  const place = join(dataDir, 'gvisor');
  const tag = serverTag(dataDir);
  const signal = new AbortController().signal;
  const at = (name: string) => join(place, name);
  const preparedDir = at('berths');
  const instances = at('instances');
  for (const path of [place, preparedDir, instances, at('layers')])
    await writing(path, () => mkdir(path, { recursive: true, mode: 0o700 }));
  const toolsDir = at('guest');
  const tools = await guestTools({ toolsDir, node, agentDir, tini: await findTini() });
  const runDir = runDirectory(tag);
  const root = join(runDir, 'runsc');
  await mkdir(root, { recursive: true, mode: 0o700 });
  const refused: RuntimeContext['refused'] = {
    tell: (refusal) => report('a connection was refused', { ...refusal }),
  };
  const network = await openSandboxNetwork({
    owner: { tag, dataDir },
    onRefusal: (refusal) => refused.tell(refusal),
    clock,
    ...options.network,
  });
  // After the network, whose first namespace has the directory of network namespaces shared with later mount namespaces.
  const mounts = await openMountNamespace(
    { runDir: await realpath(runDir), mounted: await realpath(place) },
    signal,
  );
  const view = new ReadOnlyView(at('view'), mounts);
  const ctx: RuntimeContext = {
    refused,
    tag,
    place,
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
  await clearLeftovers(ctx, signal);
  await letInAgain(ctx);
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
 * Containers that an earlier server had made ahead, or was booting a template in, belong to nobody; nor do
 * layers that no instance and no checkpoint speaks of. Unless there is one of which nothing can be read: then
 * any layer may be its own, and so may any container that runs, and they stay until that is settled.
 */
async function clearLeftovers(ctx: RuntimeContext, signal: AbortSignal): Promise<void> {
  const { files, layers, owned, binaries } = ctx;
  const running = new Set<string>();
  const used = new Set<string>();
  const spokenOf = new Set<string>();
  let isAllKnown = true;
  for await (const instance of files.list()) {
    const record = files.read(instance);
    isAllKnown &&= record !== undefined;
    if (record === undefined) continue;
    used.add(record.container.id);
    running.add(record.runsc);
    const { upper, merged, lower } = record;
    for (const layer of [upper, merged, ...lower.map(({ id }) => id)])
      if (layer !== null) spokenOf.add(layer);
  }
  const isSomebodys = async (name: string) => used.has(name) || (!isAllKnown && (await mayRun(ctx, name)));
  await clearPrepared(ctx, isSomebodys, signal);
  const ownedByAll = await owned.all();
  const ownedLayers = ownedByAll && new Set(ownedByAll.flatMap(({ layers: own }) => own));
  for await (const { id, state } of layers.list()) {
    // A merge may have ended just before the server did.
    const isOwned = state === 'sealed' && ownedLayers?.has(id) !== false;
    const isNobodys = isAllKnown && !spokenOf.has(id) && !isOwned;
    if (state === 'removing' || state === 'making' || isNobodys) await layers.remove(id);
  }
  if (isAllKnown && ownedByAll !== undefined) {
    await binaries.removeUnused(new Set([...running, ...ownedByAll.flatMap(({ runsc }) => runsc ?? [])]));
  }
}

async function mayRun({ runsc }: RuntimeContext, name: string): Promise<boolean> {
  return runsc.recordedState(name).then(
    ({ is }) => is === 'running' || is === 'paused',
    () => true,
  );
}

async function clearPrepared(
  ctx: RuntimeContext,
  isSomebodys: (name: string) => Promise<boolean>,
  signal: AbortSignal,
): Promise<void> {
  const { preparedDir, tag, network, runsc, cgroups } = ctx;
  const made = new RegExp(`^${tag}-(berth|template)-([0-9a-z]+)$`);
  const names = [await runsc.list(), await network.list(), (await cgroups?.list()) ?? []].flat();
  const numbers = [...names.flatMap((name) => made.exec(name)?.[2] ?? []), ...(await readdir(preparedDir))];
  for (const number of new Set(numbers)) {
    // The directory of an instance that came out of a berth goes with the instance.
    if (await isSomebodys(`${tag}-berth-${number}`)) continue;
    const directory = join(preparedDir, number);
    const { bundle, rootfs } = pathsIn(directory);
    for (const kind of ['berth', 'template']) {
      const name = `${tag}-${kind}-${number}`;
      if (!(await isSomebodys(name)))
        await tearDownContainer(ctx, { name, directory, bundle, rootfs }, signal);
    }
  }
}

/** Sandboxes that went on running while nobody served them get their way to the outside back. */
async function letInAgain({ files, network }: RuntimeContext): Promise<void> {
  for await (const instance of files.list()) {
    const record = files.read(instance);
    if (record !== undefined) await network.reopen(record.container.id, record.network);
  }
}

/**
 * The root of a running sandbox may have been unmounted behind our back (`umount -l`). Its gofer has a mount of its own,
 * so the sandbox runs on with all its files, and pauses and wakes as any other. The root is not mounted again: two
 * mounts with the same upper layer would write into each other's files.
 */
async function reportUnmounted({ files, mounts, report }: RuntimeContext): Promise<void> {
  for await (const instance of files.list()) {
    const record = files.read(instance);
    if (record !== undefined && mountsBelow(mounts.table(), record.rootfs).length === 0)
      report('the root of a sandbox was unmounted; it runs on with its files', { ...instance });
  }
}

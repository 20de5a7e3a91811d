/** Opens the gVisor runtime over a data directory, over whatever an earlier server has left in it. */
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, type Runtime, systemClock } from '@torpor/engine';
import { mountsBelow } from '@torpor/host';
import { openOverlayLayers } from '@torpor/layers';
import { openSandboxNetwork, type SandboxNetworkOptions } from '@torpor/network';
import { DEFAULT_RUNTIME_SETTINGS, mapWriteErrors, type RuntimeSettings } from '@torpor/runtime-shared';
import { clearBerth } from './berth.ts';
import { Berths } from './berths.ts';
import { RunscBinaries } from './binaries/runsc-binaries.ts';
import { Cgroups, findCgroups } from './cgroups.ts';
import type { Ground } from './ground.ts';
import { BaseSystems } from './guest/base-system.ts';
import { findTini, guestTools } from './guest/guest-tools.ts';
import { ReadOnlyView } from './guest/read-only-view.ts';
import { GvisorRuntime } from './gvisor-runtime.ts';
import { memoryForImages } from './image/image-memory.ts';
import { Images } from './image/images.ts';
import { InstanceFiles, pathsIn } from './instance-files.ts';
import { serverTag } from './instance-names.ts';
import { machineIdentity } from './machine-identity.ts';
import { Moorings } from './moorings.ts';
import { openMountNamespace } from './mount-namespace.ts';
import { OwnedLayers } from './owned-layers.ts';
import { runDirectory } from './run-directory.ts';
import { Runsc } from './runsc.ts';

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
  readonly ahead?: number | undefined;
  /** How many moorings may. */
  readonly moorings?: number;
  readonly network?: Partial<Omit<SandboxNetworkOptions, 'owner'>>;
  readonly report?: Ground['report'];
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
  await mapWriteErrors(options.dataDir, () => mkdir(options.dataDir, { recursive: true, mode: 0o700 }));
  const dataDir = await realpath(options.dataDir);
  const place = join(dataDir, 'gvisor');
  const tag = serverTag(dataDir);
  const signal = new AbortController().signal;
  const at = (name: string) => join(place, name);
  const berthsDir = at('berths');
  const instances = at('instances');
  for (const path of [place, berthsDir, instances, at('layers')])
    await mapWriteErrors(path, () => mkdir(path, { recursive: true, mode: 0o700 }));
  const shelf = at('guest');
  const tools = await guestTools({ shelf, node, agentDir, tini: await findTini() });
  const runDir = runDirectory(tag);
  const root = join(runDir, 'runsc');
  await mkdir(root, { recursive: true, mode: 0o700 });
  const refused: Ground['refused'] = {
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
  const ground: Ground = {
    refused,
    tag,
    place,
    runDir,
    files: new InstanceFiles(instances),
    berthsDir,
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
    shelf,
    binaries: new RunscBinaries(at('runsc'), options.oldestRunsc),
    processor: (await machineIdentity()).processor,
    clock,
    settings,
    report,
  };
  await ground.binaries.open(options.runsc);
  await ground.files.open();
  await ground.owned.open();
  await ground.images.open();
  await clearLeftovers(ground, signal);
  await letInAgain(ground);
  await reportUnmounted(ground);
  const ahead = {
    berths: new Berths(ground, options.ahead),
    moorings: new Moorings(ground, options.moorings),
  };
  const runtime = new GvisorRuntime(ground, ahead);
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
async function clearLeftovers(ground: Ground, signal: AbortSignal): Promise<void> {
  const { files, layers, owned, binaries } = ground;
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
  const isSomebodys = async (name: string) => used.has(name) || (!isAllKnown && (await mayRun(ground, name)));
  await clearBerths(ground, isSomebodys, signal);
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

async function mayRun({ runsc }: Ground, name: string): Promise<boolean> {
  return runsc.glance(name).then(
    ({ is }) => is === 'running' || is === 'paused',
    () => true,
  );
}

async function clearBerths(
  ground: Ground,
  isSomebodys: (name: string) => Promise<boolean>,
  signal: AbortSignal,
): Promise<void> {
  const { berthsDir, tag, network, runsc, cgroups } = ground;
  const made = new RegExp(`^${tag}-(berth|template)-([0-9a-z]+)$`);
  const names = [await runsc.list(), await network.list(), (await cgroups?.list()) ?? []].flat();
  const numbers = [...names.flatMap((name) => made.exec(name)?.[2] ?? []), ...(await readdir(berthsDir))];
  for (const number of new Set(numbers)) {
    // The directory of an instance that came out of a berth goes with the instance.
    if (await isSomebodys(`${tag}-berth-${number}`)) continue;
    const directory = join(berthsDir, number);
    const { bundle, rootfs } = pathsIn(directory);
    for (const kind of ['berth', 'template']) {
      const name = `${tag}-${kind}-${number}`;
      if (!(await isSomebodys(name))) await clearBerth(ground, { name, directory, bundle, rootfs }, signal);
    }
  }
}

/** Sandboxes that went on running while nobody served them get their way to the outside back. */
async function letInAgain({ files, network }: Ground): Promise<void> {
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
async function reportUnmounted({ files, mounts, report }: Ground): Promise<void> {
  for await (const instance of files.list()) {
    const record = files.read(instance);
    if (record !== undefined && mountsBelow(mounts.mountinfo(), record.rootfs).length === 0)
      report('the root of a sandbox was unmounted; it runs on with its files', { ...instance });
  }
}

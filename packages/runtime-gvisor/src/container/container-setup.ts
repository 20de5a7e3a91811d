/**
 * Sets up everything around a container before a process runs in it: a root with an upper layer of its own, a network
 * namespace, a control group, a bundle; and tears all of it down.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { LayerReference } from '@torpor/engine';
import { allDone, refuseMountsBelow, removeTree } from '@torpor/host';
import type { LayerId } from '@torpor/layers';
import type { Attachment, Bytes } from '@torpor/network';
import type { Network, Resources } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';
import {
  allowsSetuid,
  givesRawSockets,
  mistakesNetworkNamespaces,
  readsUntouchedMemory,
} from '../binaries/releases.mjs';
import type { RunscBinary } from '../binaries/runsc-binaries.ts';
import type { RootKind } from '../checkpoint-needs.ts';
import type { BaseSystem } from '../guest/base-system.ts';
import type { GuestTools } from '../guest/guest-tools.ts';
import { ociSpec } from '../guest/oci-spec.ts';
import { type InstancePaths, makeDirectories } from '../instance/instance-files.ts';
import type { PreparedRestore } from '../runsc/prepared-commands.ts';
import type { Container, ContainerProgram } from '../runsc/runsc-container.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import { setVisibleMemory, withVisibleMemory } from './visible-memory.ts';

/** The port of the agent in every guest. */
export const AGENT_PORT = 49_983;

/** What a container is made from. */
export interface ContainerSource {
  readonly rootKind: RootKind;
  /** Newest first. */
  readonly lower: readonly LayerReference[];
  readonly tools: GuestTools;
  /** Null unless `rootKind` is `base`. */
  readonly system: BaseSystem | null;
  readonly binary: RunscBinary;
}

/** The part of the source that host resources depend on. */
export type HostResourcesSource = Pick<ContainerSource, 'tools' | 'system' | 'binary'>;

export interface NetworkAndLimits {
  readonly network: Network;
  readonly resources: Resources;
}

/** A network namespace, a control group and a bundle under one name; the root is not mounted yet. */
export interface HostResources {
  readonly container: Container;
  /** Where the root is going to be mounted. */
  readonly rootfs: string;
  readonly attachment: Attachment;
  /** Only for resources from a pool: a restore that waits for its image. */
  readonly preparedRestore?: PreparedRestore;
}

/** Host resources with a mounted root. */
export interface ContainerSetup extends HostResources {
  readonly upper: LayerId;
}

interface HostResourcesOptions {
  /** Of the container, the network namespace and the control group. */
  readonly name: string;
  readonly paths: InstancePaths;
  readonly source: HostResourcesSource;
  readonly hostname: string;
  /** The memory that the guest sees. */
  readonly memoryMb: number;
}

export interface ContainerSetupOptions extends HostResourcesOptions {
  readonly source: ContainerSource;
  readonly upper: LayerId;
  /** Resources from the pool; new ones are made when undefined. */
  readonly hostResources?: HostResources | undefined;
  /** Undefined for a container whose sandbox is not known yet: it has no network and no limits. */
  readonly networkAndLimits?: NetworkAndLimits;
}

/**
 * A name and a directory for a container, also before it belongs to an instance. One container may serve several
 * generations of a sandbox, so it is not named after one. The next server removes what no instance uses under such a
 * name. The name contains `berth` (historical); it must not change, because running containers, network namespaces and
 * cgroups carry it.
 */
export function newUnassignedPaths({ serverTag, unassignedDir }: RuntimeContext) {
  const number = randomBytes(6).toString('hex');
  return { name: unassignedName(serverTag, number), directory: join(unassignedDir, number) };
}

/** `number` is also the name of the container's directory. */
export function unassignedName(serverTag: string, number: string): string {
  return `${serverTag}-berth-${number}`;
}

export function isUnassignedName(serverTag: string, name: string): boolean {
  return name.startsWith(`${serverTag}-berth-`);
}

export async function setUpContainer(
  ctx: RuntimeContext,
  options: ContainerSetupOptions,
  signal: AbortSignal,
): Promise<ContainerSetup> {
  const { source, upper, networkAndLimits } = options;
  const { rootfs } = options.hostResources ?? options.paths;
  await mapWriteErrors(rootfs, () => mkdir(rootfs, { recursive: true, mode: 0o700 }));
  const setUpHost = async () => {
    const { hostResources: pooled, memoryMb } = options;
    const hostResources = pooled ?? (await makeHostResources(ctx, options, signal));
    if (pooled !== undefined) await setVisibleMemory(pooled.container.bundle, memoryMb);
    if (networkAndLimits !== undefined) await applyNetworkAndLimits(ctx, hostResources, networkAndLimits);
    return hostResources;
  };
  const lower = source.lower.map(({ id }) => id);
  // When one task fails, the other ends first: nothing may be made after the caller has cleaned up.
  const [hostResources] = await allDone(setUpHost(), ctx.layers.mount(rootfs, lower, upper));
  return { ...hostResources, upper };
}

export async function makeHostResources(
  ctx: RuntimeContext,
  options: HostResourcesOptions,
  signal: AbortSignal,
): Promise<HostResources> {
  const { network, cgroups, readOnlyBinds } = ctx;
  const { name, paths, source, hostname, memoryMb } = options;
  await makeDirectories(paths);
  const [attachment, toolsSource] = await Promise.all([
    network.attach(name, { mode: 'none' }),
    readOnlyBinds.mount(source.tools.directory, signal),
    cgroups?.make(name),
  ]);
  const netns = `/run/netns/${attachment.netns}`;
  const spec = ociSpec({
    rootfs: paths.rootfs,
    hostname,
    tools: source.tools,
    toolsSource,
    binds: source.system?.binds ?? [],
    agentPort: AGENT_PORT,
    networkNamespace: netns,
    // The runtime sets limits itself: those of a pre-created container are not known yet.
    cgroup: null,
    resources: {},
    sudo: true,
    filterRawSockets: givesRawSockets(source.binary.releaseDate),
    setuid: source.tools.setuid && allowsSetuid(source.binary.releaseDate),
  });
  const config = join(paths.bundle, 'config.json');
  await mapWriteErrors(config, () => writeFile(config, JSON.stringify(spec)));
  const { bundle, logs, rootfs } = paths;
  await setVisibleMemory(bundle, memoryMb);
  const wrapCreation = (command: readonly string[]) => {
    const covered = withVisibleMemory(bundle, command);
    return cgroups?.wrap(name, covered) ?? covered;
  };
  const runsc = containerProgram(source.binary);
  return { container: { id: name, bundle, logs, netns, runsc, wrapCreation }, rootfs, attachment };
}

export function containerProgram({ program, releaseDate }: RunscBinary): ContainerProgram {
  return {
    program,
    hideNetworkSettings: mistakesNetworkNamespaces(releaseDate),
    readsUntouchedMemory: readsUntouchedMemory(releaseDate),
    allowsSetuid: allowsSetuid(releaseDate),
  };
}

export async function applyNetworkAndLimits(
  { network, cgroups }: RuntimeContext,
  { container }: HostResources,
  networkAndLimits: NetworkAndLimits,
): Promise<void> {
  network.setPolicy(container.id, networkAndLimits.network);
  await cgroups?.limit(container.id, networkAndLimits.resources);
}

/** Names a container and its resources, whether all of them exist or not. */
export interface ContainerPaths {
  readonly name: string;
  readonly bundle: string;
  readonly rootfs: string;
  /** The directory that contains the bundle and the root. */
  readonly directory: string;
}

/**
 * Kills the container and removes everything of it but its upper layer. When this resolves, no process writes to the
 * layer any more. Returns the bytes that the container exchanged with the outside since they were last counted.
 */
export async function tearDownContainer(
  ctx: RuntimeContext,
  { name, bundle, rootfs, directory }: ContainerPaths,
  signal: AbortSignal,
): Promise<Bytes> {
  const { runsc, layers, network, cgroups, mounts } = ctx;
  await runsc.killProcesses({ id: name, bundle }, signal);
  await layers.unmount(rootfs);
  const bytes = await network.detach(name);
  await runsc.deleteState(name);
  if (cgroups !== null && !(await cgroups.remove(name))) await removeBusyCgroup(ctx, name, signal);
  refuseMountsBelow(mounts, directory);
  await removeTree(directory);
  return bytes;
}

/** A killed process stays a member of its control group until its parent has reaped it. */
async function removeBusyCgroup(
  { cgroups, clock }: RuntimeContext,
  name: string,
  signal: AbortSignal,
): Promise<void> {
  for (let tries = 0; tries < 100; tries++) {
    for (const pid of (await cgroups?.members(name)) ?? []) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // The process has ended meanwhile.
      }
    }
    if ((await cgroups?.remove(name)) !== false) return;
    await clock.sleep(20, signal);
  }
}

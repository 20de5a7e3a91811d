/**
 * A berth: everything an instance needs around it before it can be brought to life. A root with an upper layer
 * of its own, a network namespace, a control group, a configuration; and, when it was made ahead, a container
 * that waits for its memory.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { refuseMountsBelow, removeTree, writing } from '@torpor/host';
import type { LayerId } from '@torpor/layers';
import type { Attachment, Bytes } from '@torpor/network';
import type { Network, Resources } from '@torpor/protocol';
import { givesRawSockets, mistakesNetworkNamespaces, readsUntouchedMemory } from '../binaries/releases.mjs';
import type { RunscBinary } from '../binaries/runsc-binaries.ts';
import type { RootKind, StackedLayer } from '../checkpoint-needs.ts';
import type { BaseSystem } from '../guest/base-system.ts';
import type { GuestTools } from '../guest/guest-tools.ts';
import { ociSpec } from '../guest/oci-spec.ts';
import { type InstancePaths, makeDirectories } from '../instance/instance-files.ts';
import type { Container, PreparedRestore } from '../runsc/runsc.ts';
import type { RuntimeContext } from '../runtime-context.ts';

/** The agent's own port, never anybody else's. */
export const AGENT_PORT = 49_983;

/** What a berth is made for. */
export interface ContainerSource {
  readonly root: RootKind;
  /** Newest first. */
  readonly lower: readonly StackedLayer[];
  readonly tools: GuestTools;
  /** For `base`. */
  readonly system: BaseSystem | null;
  readonly binary: RunscBinary;
}

/** What a sandbox was promised. */
interface NetworkAndLimits {
  readonly network: Network;
  readonly resources: Resources;
}

/** A berth without files: a network namespace, a control group and a configuration, under one name. */
export interface HostResources {
  readonly container: Container;
  /** Where its files will be mounted. */
  readonly rootfs: string;
  readonly attachment: Attachment;
  /** When it was made ahead. */
  readonly preparedRestore?: PreparedRestore;
}

export interface ContainerSetup extends HostResources {
  readonly upper: LayerId;
}

interface HostResourcesOptions {
  /** Of the container, the network namespace and the control group. */
  readonly name: string;
  readonly paths: InstancePaths;
  readonly source: Pick<ContainerSource, 'tools' | 'system' | 'binary'>;
  readonly hostname: string;
}

export interface ContainerSetupOptions extends HostResourcesOptions {
  readonly source: ContainerSource;
  readonly upper: LayerId;
  /** When it was made ahead. */
  readonly hostResources?: HostResources | undefined;
  /** When it is known who comes. */
  readonly networkAndLimits?: NetworkAndLimits;
}

/** A name and a directory for what is nobody's yet; whatever is left under it, the next server clears away. */
export function newPreparedPlace({ tag, preparedDir }: RuntimeContext) {
  const number = randomBytes(6).toString('hex');
  return { name: `${tag}-berth-${number}`, directory: join(preparedDir, number) };
}

/** Nothing is allowed in it, and nothing limited, until it is settled: here, when its networkAndLimits are known. */
export async function setUpContainer(
  ctx: RuntimeContext,
  order: ContainerSetupOptions,
  signal: AbortSignal,
): Promise<ContainerSetup> {
  const { source, upper, networkAndLimits } = order;
  const { rootfs } = order.hostResources ?? order.paths;
  await writing(rootfs, () => mkdir(rootfs, { recursive: true, mode: 0o700 }));
  const lower = source.lower.map(({ id }) => id);
  const prepareHost = async () => {
    const hostResources = order.hostResources ?? (await makeHostResources(ctx, order, signal));
    if (networkAndLimits !== undefined) await applyNetworkAndLimits(ctx, hostResources, networkAndLimits);
    return hostResources;
  };
  const tasks = [prepareHost(), ctx.layers.mount(rootfs, lower, upper)] as const;
  // None of them outlives the failure of the other.
  await Promise.allSettled(tasks);
  const [hostResources] = await Promise.all(tasks);
  return { ...hostResources, upper };
}

export async function makeHostResources(
  ctx: RuntimeContext,
  order: HostResourcesOptions,
  signal: AbortSignal,
): Promise<HostResources> {
  const { network, cgroups, view } = ctx;
  const { name, paths, source, hostname } = order;
  await makeDirectories(paths);
  const [attachment, toolsSource] = await Promise.all([
    network.attach(name, { mode: 'none' }),
    view.show(source.tools.directory, signal),
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
    // Ours, set from outside: what is made ahead does not know its limits yet.
    cgroup: null,
    resources: {},
    sudo: true,
    filterRawSockets: givesRawSockets(source.binary.day),
  });
  const config = join(paths.bundle, 'config.json');
  await writing(config, () => writeFile(config, JSON.stringify(spec)));
  const { bundle, logs, rootfs } = paths;
  const entering =
    cgroups === null ? {} : { entering: (command: readonly string[]) => cgroups.entering(name, command) };
  const runsc = containerProgram(source.binary);
  return { container: { id: name, bundle, logs, netns, runsc, ...entering }, rootfs, attachment };
}

export function containerProgram({ program, day }: RunscBinary): NonNullable<Container['runsc']> {
  return {
    program,
    hideNetworkSettings: mistakesNetworkNamespaces(day),
    readsUntouchedMemory: readsUntouchedMemory(day),
  };
}

/** Gives a berth what the sandbox in it was promised. */
export async function applyNetworkAndLimits(
  { network, cgroups }: RuntimeContext,
  { container }: HostResources,
  networkAndLimits: NetworkAndLimits,
): Promise<void> {
  network.setPolicy(container.id, networkAndLimits.network);
  await cgroups?.limit(container.id, networkAndLimits.resources);
}

/** What there is of a berth, however it came about. */
export interface ContainerPlace {
  readonly name: string;
  readonly bundle: string;
  readonly rootfs: string;
  /** The directory that it all lies in. */
  readonly directory: string;
}

/**
 * Ends whatever runs in it and takes everything away but its upper layer. When it resolves nothing writes to
 * that any more. Answers with the bytes that it exchanged with the outside and nobody took before.
 */
export async function tearDownContainer(
  ctx: RuntimeContext,
  remains: ContainerPlace,
  signal: AbortSignal,
): Promise<Bytes> {
  const { runsc, layers, network, cgroups, mounts } = ctx;
  const { name, bundle, rootfs, directory } = remains;
  await runsc.end({ id: name, bundle }, signal);
  await layers.unmount(rootfs);
  const bytes = await network.detach(name);
  await runsc.forget(name);
  if (cgroups !== null && !(await cgroups.remove(name))) await emptied(ctx, name, signal);
  refuseMountsBelow(mounts, directory);
  await removeTree(directory);
  return bytes;
}

/** A process that was just killed is a member until somebody has collected it. */
async function emptied({ cgroups, clock }: RuntimeContext, name: string, signal: AbortSignal): Promise<void> {
  for (let tries = 0; tries < 100; tries++) {
    for (const pid of (await cgroups?.members(name)) ?? []) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // It has ended meanwhile.
      }
    }
    if ((await cgroups?.remove(name)) !== false) return;
    await clock.sleep(20, signal);
  }
}

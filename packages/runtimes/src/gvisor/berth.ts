/**
 * A berth: everything an instance needs around it before it can be brought to life. A root with an upper layer
 * of its own, a network namespace, a control group, a configuration; and, when it was made ahead, a container
 * that waits for its memory.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Network, Resources } from '@torpor/protocol';
import { removeTree } from '../remove-tree.ts';
import { writing } from '../storage-failure.ts';
import type { RootKind, StackedLayer } from './checkpoint-needs.ts';
import type { Ground } from './ground.ts';
import type { BaseSystem } from './guest/base-system.ts';
import type { GuestTools } from './guest/guest-tools.ts';
import { ociSpec } from './guest/oci-spec.ts';
import { type InstancePaths, makePlace } from './instance-files.ts';
import type { LayerId } from './layers/layer-id.ts';
import type { Attachment } from './network/sandbox-network.ts';
import type { Container } from './runsc.ts';

/** The agent's own port, never anybody else's. */
export const AGENT_PORT = 49_983;

/** What a berth is made for. */
export interface Stack {
  readonly root: RootKind;
  /** Newest first. */
  readonly lower: readonly StackedLayer[];
  readonly tools: GuestTools;
  /** For `base`. */
  readonly system: BaseSystem | null;
}

export interface Berth {
  readonly container: Container;
  readonly rootfs: string;
  readonly upper: LayerId;
  readonly attachment: Attachment;
}

export interface BerthOrder {
  /** Of the container, the network namespace and the control group. */
  readonly name: string;
  readonly paths: InstancePaths;
  readonly stack: Stack;
  readonly upper: LayerId;
  readonly hostname: string;
  readonly network: Network;
  readonly resources: Resources;
}

export async function makeBerth(ground: Ground, order: BerthOrder, signal: AbortSignal): Promise<Berth> {
  const { layers, network, cgroups, view } = ground;
  const { name, paths, stack, upper, hostname } = order;
  await makePlace(paths);
  const [attachment, toolsSource] = await Promise.all([
    network.attach(name, order.network),
    view.show(stack.tools.directory, signal),
    layers.mount(
      paths.rootfs,
      stack.lower.map(({ id }) => id),
      upper,
    ),
    cgroups?.make(name).then(() => cgroups.limit(name, order.resources)),
  ]);
  const spec = ociSpec({
    rootfs: paths.rootfs,
    hostname,
    tools: stack.tools,
    toolsSource,
    binds: stack.system?.binds ?? [],
    agentPort: AGENT_PORT,
    networkNamespace: `/run/netns/${attachment.netns}`,
    // Ours, set from outside: a container made ahead does not know its limits yet.
    cgroup: null,
    resources: {},
    sudo: true,
  });
  const config = join(paths.bundle, 'config.json');
  await writing(config, () => writeFile(config, JSON.stringify(spec)));
  const container: Container = {
    id: name,
    bundle: paths.bundle,
    logs: paths.logs,
    netns: `/run/netns/${attachment.netns}`,
    ...(cgroups === null ? {} : { entering: (command) => cgroups.entering(name, command) }),
  };
  return { container, rootfs: paths.rootfs, upper, attachment };
}

/** What there is of a berth, however it came about. */
export interface BerthRemains {
  readonly name: string;
  readonly bundle: string;
  readonly rootfs: string;
  /** The directory that it all lies in. */
  readonly directory: string;
}

/**
 * Ends whatever runs in it and takes everything away but its upper layer. When it resolves nothing writes to
 * that any more.
 */
export async function clearBerth(ground: Ground, remains: BerthRemains, signal: AbortSignal): Promise<void> {
  const { runsc, layers, network, cgroups } = ground;
  const { name, bundle, rootfs, directory } = remains;
  await runsc.end({ id: name, bundle }, signal);
  await layers.unmount(rootfs);
  await network.detach(name);
  await runsc.forget(name);
  if (cgroups !== null && !(await cgroups.remove(name))) await emptied(ground, name, signal);
  await removeTree(directory);
}

/** A process that was just killed is a member until somebody has collected it. */
async function emptied({ cgroups, clock }: Ground, name: string, signal: AbortSignal): Promise<void> {
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

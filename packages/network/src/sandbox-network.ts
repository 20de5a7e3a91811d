/**
 * The network of a server's sandboxes: addresses, namespaces, firewall, egress and resolver behind the few calls that a
 * runtime needs. The state in the kernel outlives the process, as the sandboxes do. The next process with the same data
 * directory takes it over. `open-network.ts` creates the parts.
 */
import type { FileHandle } from 'node:fs/promises';
import type { Clock } from '@torpor/engine';
import { KeyedMutex } from '@torpor/host';
import { type Network, TorporError } from '@torpor/protocol';
import { AttachedInstance, type Bytes, type Usage } from './attached-instance.ts';
import type { ConnectionResets } from './connection-resets.ts';
import type { Egress } from './egress.ts';
import { type Firewall, RESOLVER_ADDRESS } from './firewall.ts';
import { namespaceNames } from './namespaces.ts';
import type { EgressAuthority, TrustedAuthority } from './opened/egress-authority.ts';
import type { TrackedConnection } from './original-destinations.ts';
import { NOTHING_ALLOWED, type Policy, policyOf } from './policy.ts';
import type { Refusals } from './refusals.ts';
import type { Resolver } from './resolver.ts';
import { type Router, removeRouter, type SandboxLink } from './router.ts';
import { makeSandboxNamespace, removeSandboxNamespace, setAddresses } from './sandbox-namespace.ts';
import type { SlotPool } from './slot-pool.ts';
import { farAddress, nearAddress, type Slot } from './slots.ts';

/** The addresses of an attached instance. */
export interface Attachment {
  /** The name of the network namespace for `ip netns` and below /run/netns. */
  readonly netns: string;
  /** The sandbox's address, which the host can dial. */
  readonly guestAddress: string;
  /** The router's end of the link: the sandbox's default route. */
  readonly hostAddress: string;
  /** The name server for /etc/resolv.conf, the same in every sandbox. */
  readonly resolverAddress: string;
  readonly slot: Slot;
}

export interface NetworkParts {
  readonly tag: string;
  readonly router: Router;
  readonly slots: SlotPool;
  readonly firewall: Firewall;
  readonly egress: Egress;
  readonly resolver: Resolver;
  readonly resets: ConnectionResets;
  readonly refusals: Refusals;
  readonly authority: EgressAuthority;
  readonly conntrack: FileHandle | undefined;
  readonly clock: Clock;
}

/** How often the kernel's list of rejected datagrams is read. */
const COLLECT_EVERY_MS = 5_000;

export class SandboxNetwork {
  readonly #parts: NetworkParts;
  readonly #mutex = new KeyedMutex<string>();
  readonly #byName: Map<string, AttachedInstance>;
  readonly #byAddress: Map<string, AttachedInstance>;
  readonly #closing = new AbortController();
  readonly #collecting: Promise<void>;

  /** `instances` is shared with the egress and the resolver, which find an instance by its address. */
  constructor(parts: NetworkParts, instances: Map<string, AttachedInstance>) {
    this.#parts = parts;
    this.#byAddress = instances;
    this.#byName = new Map([...instances.values()].map((instance) => [instance.name, instance]));
    this.#collecting = this.#collectRejected();
  }

  /**
   * Creates the namespace of an instance if needed, and sets address and route. Called before every start of the instance,
   * also when it is attached already, and never while it runs.
   */
  async attach(name: string, network: Network): Promise<Attachment> {
    const policy = policyOf(network);
    this.#checkName(name);
    return this.#mutex.run(name, async () => {
      const known = this.#byName.get(name);
      if (known !== undefined) await this.#release(known, policy);
      const instance = known ?? (await this.#make(name, policy));
      await setAddresses({ netns: name, slot: instance.slot });
      return attachmentOf(instance);
    });
  }

  /**
   * Ends the hold on an attached instance: from now on its connections are decided by this policy. Called when an instance is
   * thawed, kept in memory (with a policy that allows nothing) or adopted, and for instances that an earlier process attached.
   * Returns undefined when the instance is not attached.
   */
  async reopen(name: string, network: Network): Promise<Attachment | undefined> {
    const policy = policyOf(network);
    return this.#mutex.run(name, async () => {
      const instance = this.#byName.get(name);
      if (instance === undefined) return undefined;
      await this.#release(instance, policy);
      return attachmentOf(instance);
    });
  }

  /** Removes everything of the instance; a missing one is ignored. Resolves with the bytes since the last `takeBytes`. */
  detach(name: string): Promise<Bytes> {
    this.#checkName(name);
    return this.#mutex.run(name, async () => {
      const { router, firewall, slots } = this.#parts;
      const instance = this.#byName.get(name);
      if (instance === undefined) {
        await removeSandboxNamespace(router, name);
        return { sent: 0, received: 0 };
      }
      const { slot, isHeld } = instance;
      instance.hold();
      await removeSandboxNamespace(router, name, slot);
      if (isHeld) await firewall.release(slot);
      this.#byName.delete(name);
      this.#byAddress.delete(instance.address);
      slots.giveBack(slot);
      return instance.takeBytes();
    });
  }

  /** Cuts open connections that are no longer allowed. */
  setPolicy(name: string, network: Network): void {
    this.#get(name).setPolicy(policyOf(network));
  }

  /** Refuses new connections between the instance and the outside until `release`. Runs a program. */
  hold(name: string): Promise<void> {
    return this.#mutex.run(name, () => this.#hold(this.#get(name)));
  }

  /** Resets the connections that there are now. New ones may be opened meanwhile. */
  async resetOpen(name: string): Promise<void> {
    const instance = this.#get(name);
    instance.hold();
    await this.#parts.resets.reset(instance.address);
  }

  /**
   * Resets all connections between the instance and the outside, and refuses new ones until `release`. Resolves with the
   * connections that may still be open, usually none. While there are any, the caller must not write a memory image;
   * `connection-resets.ts` says why.
   */
  reset(name: string): Promise<readonly TrackedConnection[]> {
    return this.#mutex.run(name, async () => {
      const instance = this.#get(name);
      await this.#hold(instance);
      return this.#parts.resets.reset(instance.address);
    });
  }

  /** Allows connections again after `reset`, by the policy that the instance has. */
  release(name: string): Promise<void> {
    return this.#mutex.run(name, async () => {
      const instance = this.#get(name);
      await this.#release(instance, instance.policy);
    });
  }

  /** The bytes since the last call. Undefined when the instance is not attached. */
  takeBytes(name: string): Bytes | undefined {
    return this.#byName.get(name)?.takeBytes();
  }

  usage(name: string): Usage {
    return this.#get(name).usage();
  }

  /** The authority that a sandbox with secrets must trust: the egress opens its connections to their hosts. */
  authority(): Promise<TrustedAuthority> {
    return this.#parts.authority.trusted();
  }

  /** All instances with anything in the kernel, also those whose creation was interrupted. */
  async list(): Promise<string[]> {
    const { tag, router } = this.#parts;
    const names = (await namespaceNames(`${tag}-`)).filter((name) => name !== router.netns);
    return [...new Set([...this.#byName.keys(), ...names])];
  }

  /** Cuts the instances off and leaves them attached. Without instances, removes the router and all addresses. */
  async close(): Promise<void> {
    const { egress, resolver, refusals, router, slots, conntrack } = this.#parts;
    this.#closing.abort();
    await this.#collecting;
    for (const instance of this.#byName.values()) instance.hold();
    await Promise.all([egress.close(), resolver.close()]);
    refusals.close();
    await conntrack?.close();
    if ((await this.list()).length > 0) return;
    await removeRouter(router);
    await slots.releaseAll();
  }

  async #make(name: string, policy: Policy): Promise<AttachedInstance> {
    const { router, slots } = this.#parts;
    await removeSandboxNamespace(router, name);
    const slot = await slots.take();
    try {
      await makeSandboxNamespace(router, { netns: name, slot });
    } catch (thrown) {
      // If the removal fails, the slot is not reused. A later `detach` removes the rest by its name.
      await removeSandboxNamespace(router, name, slot).then(
        () => slots.giveBack(slot),
        () => {},
      );
      throw thrown;
    }
    const instance = new AttachedInstance(name, slot, policy);
    this.#byName.set(name, instance);
    this.#byAddress.set(instance.address, instance);
    return instance;
  }

  async #hold(instance: AttachedInstance): Promise<void> {
    instance.hold();
    if (!instance.isBlocked) await this.#parts.firewall.hold(instance.slot);
    instance.isBlocked = true;
  }

  async #release(instance: AttachedInstance, policy: Policy): Promise<void> {
    if (instance.isHeld) await this.#parts.firewall.release(instance.slot);
    instance.isBlocked = false;
    instance.setPolicy(policy);
    instance.isHeld = false;
  }

  #get(name: string): AttachedInstance {
    const instance = this.#byName.get(name);
    if (instance !== undefined) return instance;
    throw new TorporError('not_found', `The instance ${name} is not attached to the network.`);
  }

  /** Names become arguments of commands, and names with another server's tag must not be touched. */
  #checkName(name: string): void {
    const { tag, router } = this.#parts;
    if (/^[a-z0-9-]{1,64}$/.test(name) && name.startsWith(`${tag}-`) && name !== router.netns) return;
    throw new TorporError('internal', `"${name}" is not the name of an instance of ${tag}.`);
  }

  /** The kernel rejects datagrams by itself and only records their destinations. */
  async #collectRejected(): Promise<void> {
    const { firewall, refusals, clock } = this.#parts;
    const { signal } = this.#closing;
    while (!signal.aborted) {
      await clock.sleep(COLLECT_EVERY_MS, signal).catch(() => {});
      if (signal.aborted || this.#byName.size === 0) continue;
      for (const { from, to, port } of await firewall.takeRejected().catch(() => [])) {
        const instance = this.#byAddress.get(from);
        const destination = `${to}:${port}`;
        const attempt = { via: 'udp', destination, name: null, reason: 'only_tcp', rule: null } as const;
        if (instance !== undefined) refusals.record(instance.name, attempt);
      }
    }
  }
}

/** The instances that the links in the router name. They reach nothing until `reopen` sets their policies. */
export function attachedInstances(links: readonly SandboxLink[]): Map<string, AttachedInstance> {
  const byAddress = new Map<string, AttachedInstance>();
  for (const { slot, instance: name } of links) {
    if (name === undefined) continue;
    const instance = new AttachedInstance(name, slot, NOTHING_ALLOWED);
    instance.isHeld = true;
    byAddress.set(instance.address, instance);
  }
  return byAddress;
}

function attachmentOf({ name, slot }: AttachedInstance): Attachment {
  return {
    netns: name,
    guestAddress: farAddress(slot),
    hostAddress: nearAddress(slot),
    resolverAddress: RESOLVER_ADDRESS,
    slot,
  };
}

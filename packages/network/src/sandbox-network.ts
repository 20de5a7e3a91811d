/**
 * The network of a server's sandboxes: addresses, namespaces, rules, egress and resolver behind the few calls that
 * a runtime needs. What it makes in the kernel outlives the process, as the sandboxes do; the next process with
 * the same data directory finds it again. `open-network.ts` puts it together.
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
import type { TrackedConnection } from './original-destinations.ts';
import { NOTHING_ALLOWED, type Policy, policyOf } from './policy.ts';
import type { Refusals } from './refusals.ts';
import type { Resolver } from './resolver.ts';
import { type Router, removeRouter, type SandboxLink } from './router.ts';
import { makeSandboxNamespace, removeSandboxNamespace, setAddresses } from './sandbox-namespace.ts';
import type { SlotPool } from './slot-pool.ts';
import { farAddress, nearAddress, type Slot } from './slots.ts';

/** Where an instance is in the network. */
export interface Attachment {
  /** Its network namespace, as `ip netns` and /run/netns name it. */
  readonly netns: string;
  /** The sandbox's address, which the host can dial. */
  readonly guestAddress: string;
  /** Our end of the pair: the sandbox's default route. */
  readonly hostAddress: string;
  /** The name server for its /etc/resolv.conf, the same in every sandbox. */
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
  readonly conntrack: FileHandle | undefined;
  readonly clock: Clock;
}

/** How often the kernel is asked what it has rejected by itself. */
const COLLECT_EVERY_MS = 5_000;

export class SandboxNetwork {
  readonly #parts: NetworkParts;
  readonly #turns = new KeyedMutex<string>();
  readonly #byName: Map<string, AttachedInstance>;
  readonly #byAddress: Map<string, AttachedInstance>;
  readonly #closing = new AbortController();
  readonly #collecting: Promise<void>;

  /** `instances` is shared with the egress and the resolver, who find an instance by its address. */
  constructor(parts: NetworkParts, instances: Map<string, AttachedInstance>) {
    this.#parts = parts;
    this.#byAddress = instances;
    this.#byName = new Map([...instances.values()].map((instance) => [instance.name, instance]));
    this.#collecting = this.#collectRejected();
  }

  /**
   * Gives an instance its namespace with address and route set. To be called before every start of it, also when
   * it is there already, and never while it runs.
   */
  async attach(name: string, network: Network): Promise<Attachment> {
    const policy = policyOf(network);
    this.#checkName(name);
    return this.#turns.run(name, async () => {
      const known = this.#byName.get(name);
      if (known !== undefined) await this.#resume(known, policy);
      const instance = known ?? (await this.#make(name, policy));
      await setAddresses({ netns: name, slot: instance.slot });
      return attachmentOf(instance);
    });
  }

  /**
   * An instance that runs since before this process. Until this is called nothing is allowed to it. Undefined when
   * it is not on the network.
   */
  async reopen(name: string, network: Network): Promise<Attachment | undefined> {
    const policy = policyOf(network);
    return this.#turns.run(name, async () => {
      const instance = this.#byName.get(name);
      if (instance === undefined) return undefined;
      await this.#resume(instance, policy);
      return attachmentOf(instance);
    });
  }

  /** Takes away everything of the instance. Absent is fine. Resolves with the bytes that nobody took before. */
  detach(name: string): Promise<Bytes> {
    this.#checkName(name);
    return this.#turns.run(name, async () => {
      const { router, firewall, slots } = this.#parts;
      const instance = this.#byName.get(name);
      if (instance === undefined) {
        await removeSandboxNamespace(router, name);
        return { sent: 0, received: 0 };
      }
      const { slot, isHeld } = instance;
      this.#hold(instance);
      await removeSandboxNamespace(router, name, slot);
      if (isHeld) await firewall.release(slot);
      this.#byName.delete(name);
      this.#byAddress.delete(instance.address);
      slots.give(slot);
      return instance.takeBytes();
    });
  }

  /** What is open and no longer allowed is cut. */
  setPolicy(name: string, network: Network): void {
    this.#setPolicy(this.#get(name), policyOf(network));
  }

  /**
   * Ends every connection between the instance and the outside, so that its memory can be written, and lets none
   * begin until `release`. Resolves with those that it may still have open, usually none: a memory image cannot
   * be made then.
   */
  reset(name: string): Promise<readonly TrackedConnection[]> {
    return this.#turns.run(name, async () => {
      const instance = this.#get(name);
      this.#hold(instance);
      await this.#parts.firewall.hold(instance.slot);
      return this.#parts.resets.reset(instance.address);
    });
  }

  release(name: string): Promise<void> {
    return this.#turns.run(name, async () => {
      const instance = this.#get(name);
      await this.#resume(instance, instance.policy);
    });
  }

  /** The bytes since the last call; undefined when the instance is not on the network. */
  takeBytes(name: string): Bytes | undefined {
    return this.#byName.get(name)?.takeBytes();
  }

  usage(name: string): Usage {
    return this.#get(name).usage();
  }

  /** Every instance that has anything on the network, also what was only half made. */
  async list(): Promise<string[]> {
    const { tag, router } = this.#parts;
    const names = (await namespaceNames(`${tag}-`)).filter((name) => name !== router.netns);
    return [...new Set([...this.#byName.keys(), ...names])];
  }

  /** Leaves the instances as they are, cut off from the outside; without any, leaves nothing behind. */
  async close(): Promise<void> {
    const { egress, resolver, refusals, router, slots, conntrack } = this.#parts;
    this.#closing.abort();
    await this.#collecting;
    for (const instance of this.#byName.values()) this.#hold(instance);
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
      // Without its slot, should some of it be there still: it is found and taken away by its name.
      await removeSandboxNamespace(router, name, slot).then(
        () => slots.give(slot),
        () => {},
      );
      throw thrown;
    }
    const instance = new AttachedInstance(name, slot, policy);
    this.#byName.set(name, instance);
    this.#byAddress.set(instance.address, instance);
    return instance;
  }

  async #resume(instance: AttachedInstance, policy: Policy): Promise<void> {
    if (instance.isHeld) await this.#parts.firewall.release(instance.slot);
    this.#setPolicy(instance, policy);
    instance.isHeld = false;
  }

  #setPolicy(instance: AttachedInstance, policy: Policy): void {
    instance.policy = policy;
    this.#parts.egress.recheck(instance);
  }

  #hold(instance: AttachedInstance): void {
    instance.isHeld = true;
    this.#parts.egress.cut(instance);
    this.#parts.resolver.cut(instance);
  }

  #get(name: string): AttachedInstance {
    const instance = this.#byName.get(name);
    if (instance !== undefined) return instance;
    throw new TorporError('not_found', `The instance ${name} is not on the network.`);
  }

  /** Names become words of commands; and what has another server's tag is not ours to touch. */
  #checkName(name: string): void {
    const { tag, router } = this.#parts;
    if (/^[a-z0-9-]{1,64}$/.test(name) && name.startsWith(`${tag}-`) && name !== router.netns) return;
    throw new TorporError('internal', `"${name}" is not the name of an instance of ${tag}.`);
  }

  /** Datagrams are rejected by the kernel, which only remembers where they were meant to go. */
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
        if (instance !== undefined) refusals.note(instance.name, attempt);
      }
    }
  }
}

/** As the links in the router say. A process that finds them does not know yet what is allowed to whom. */
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

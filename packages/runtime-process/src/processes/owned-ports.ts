/** Finds the address of a port, but only if a process of the instance listens there and not one of the host. */
import type { Address, Instance } from '@torpor/engine';
import type { HostProcesses, Listener, ProcessFacts } from '@torpor/host';

/** Addresses that listen on every address of the machine. */
const WILDCARDS: readonly string[] = ['0.0.0.0', '::'];

/** Whose ports are looked for. */
export interface PortOwner {
  /** The user of which only the instance has processes; null when the instance runs as the server's user. */
  readonly user: number | null;
  members(): Promise<readonly ProcessFacts[]>;
}

export class OwnedPorts {
  readonly #host: HostProcesses;
  /**
   * The known listening sockets of each instance. A socket keeps its name and owner while it listens, so only new sockets
   * are looked up among the open files of processes.
   */
  readonly #known = new Map<string, Set<string>>();

  constructor(host: HostProcesses) {
    this.#host = host;
  }

  async find(instance: Instance, port: number, owner: PortOwner): Promise<Address | null> {
    const listeners = await this.#host.listeners(port);
    if (listeners.length === 0) return null;
    const owned = await this.#owned(instance, listeners, owner);
    const own = listeners.find(({ socket }) => owned.has(socket));
    if (own === undefined) return null;
    const host = addressToDial(own);
    // Several sockets may share one address. The kernel then chooses which one accepts a connection.
    const isAmbiguous = listeners.some((one) => !owned.has(one.socket) && acceptsOn(one, host));
    return isAmbiguous ? null : { host, port };
  }

  forget(instance: Instance): void {
    this.#known.delete(keyOf(instance));
  }

  async #owned(
    instance: Instance,
    listeners: readonly Listener[],
    { user, members }: PortOwner,
  ): Promise<ReadonlySet<string>> {
    const known = this.#known.get(keyOf(instance)) ?? new Set();
    // In a container without CAP_SYS_PTRACE root cannot read the open files of another user's processes.
    for (const listener of listeners) {
      if (user !== null && listener.user === user) known.add(listener.socket);
    }
    const asked = new Set(listeners.map(({ socket }) => socket).filter((socket) => !known.has(socket)));
    for (const facts of asked.size === 0 ? [] : await members()) {
      for (const socket of await this.#host.heldSockets(facts, asked)) known.add(socket);
    }
    if (known.size > 0) this.#known.set(keyOf(instance), known);
    return known;
  }
}

function keyOf({ sandboxId, generation }: Instance): string {
  return `${sandboxId}/${generation}`;
}

/** A socket on the IPv6 wildcard accepts IPv4 too unless it is IPv6-only, also on hosts without an IPv6 loopback. */
function addressToDial({ address }: Listener): string {
  return WILDCARDS.includes(address) ? '127.0.0.1' : address;
}

function acceptsOn({ address }: Listener, host: string): boolean {
  return address === host || WILDCARDS.includes(address);
}

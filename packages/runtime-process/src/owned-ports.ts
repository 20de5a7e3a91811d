/** Where a port can be dialled, and only if what listens there belongs to the instance: the host has ports too. */
import type { Address, Instance } from '@torpor/engine';
import type { HostProcesses, Listener, ProcessFacts } from '@torpor/host';

/** Addresses that stand for every address of the machine. */
const EVERYWHERE: readonly string[] = ['0.0.0.0', '::'];

export class OwnedPorts {
  readonly #host: HostProcesses;
  /**
   * Sockets known to be an instance's. A socket keeps its name and its owners for as long as it listens, so
   * that only new ones have to be looked for among the open files of processes.
   */
  readonly #known = new Map<string, Set<string>>();

  constructor(host: HostProcesses) {
    this.#host = host;
  }

  async find(
    instance: Instance,
    port: number,
    members: () => Promise<readonly ProcessFacts[]>,
  ): Promise<Address | null> {
    const listeners = await this.#host.listeners(port);
    if (listeners.length === 0) return null;
    const owned = await this.#owned(instance, listeners, members);
    const own = listeners.find(({ socket }) => owned.has(socket));
    if (own === undefined) return null;
    const host = dialled(own);
    // Several may share one address, and the system then chooses who answers.
    const isAmbiguous = listeners.some((one) => !owned.has(one.socket) && answers(one, host));
    return isAmbiguous ? null : { host, port };
  }

  forget(instance: Instance): void {
    this.#known.delete(keyOf(instance));
  }

  async #owned(
    instance: Instance,
    listeners: readonly Listener[],
    members: () => Promise<readonly ProcessFacts[]>,
  ): Promise<ReadonlySet<string>> {
    const known = this.#known.get(keyOf(instance)) ?? new Set();
    const asked = new Set(listeners.map(({ socket }) => socket).filter((socket) => !known.has(socket)));
    if (asked.size === 0) return known;
    for (const facts of await members()) {
      for (const socket of await this.#host.heldSockets(facts, asked)) known.add(socket);
    }
    if (known.size > 0) this.#known.set(keyOf(instance), known);
    return known;
  }
}

function keyOf({ sandboxId, generation }: Instance): string {
  return `${sandboxId}/${generation}`;
}

/** What listens everywhere on IPv6 takes IPv4 too unless told not to, also where IPv6 has no loopback. */
function dialled({ address }: Listener): string {
  return EVERYWHERE.includes(address) ? '127.0.0.1' : address;
}

function answers({ address }: Listener, host: string): boolean {
  return address === host || EVERYWHERE.includes(address);
}

/** Where a port can be dialled, and only if what listens there belongs to the sandbox: the host has ports too. */
import type { Address } from '@torpor/engine';
import type { HostProcesses, Listener, ProcessFacts } from './host-processes.ts';

/** Addresses that stand for every address of the machine. */
const EVERYWHERE: readonly string[] = ['0.0.0.0', '::'];

/** `members` is asked only when somebody listens at all. */
export async function ownedPort(
  host: HostProcesses,
  port: number,
  members: () => Promise<readonly ProcessFacts[]>,
): Promise<Address | null> {
  const listeners = await host.listeners(port);
  if (listeners.length === 0) return null;
  const owned = await ownedSockets(host, listeners, await members());
  const own = listeners.find(({ socket }) => owned.has(socket));
  if (own === undefined) return null;
  const address = dialled(own);
  // Several may share one address, and the system then chooses who answers.
  const isAmbiguous = listeners.some((one) => !owned.has(one.socket) && answers(one, address));
  return isAmbiguous ? null : { host: address, port };
}

async function ownedSockets(
  host: HostProcesses,
  listeners: readonly Listener[],
  members: readonly ProcessFacts[],
): Promise<Set<string>> {
  const sockets = new Set(listeners.map(({ socket }) => socket));
  const owned = new Set<string>();
  for (const { pid } of members) {
    for (const socket of await host.holds(pid, sockets)) owned.add(socket);
    if (owned.size === sockets.size) break;
  }
  return owned;
}

/** What listens everywhere on IPv6 takes IPv4 too unless told not to, also where IPv6 has no loopback. */
function dialled({ address }: Listener): string {
  return EVERYWHERE.includes(address) ? '127.0.0.1' : address;
}

function answers({ address }: Listener, dialledAddress: string): boolean {
  return address === dialledAddress || EVERYWHERE.includes(address);
}

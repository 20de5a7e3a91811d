/**
 * The addresses that sandboxes can reach at all, before any policy: the public internet, and the networks that the operator
 * opened to all sandboxes. The lists of a sandbox never add to these.
 */
import type { Clock } from '@torpor/engine';
import { parseLocalNetworks } from './host-networks.ts';
import { contains, type Ipv4Network, ipv4Network } from './ipv4.ts';

export { readRoutes } from './host-networks.ts';
export { contains, type Ipv4Network, parseIpv4, parseIpv4Network } from './ipv4.ts';

/** No setting opens these: this machine, and services that trust packets from this machine. */
const NEVER_REACHABLE = [
  '0.0.0.0/8',
  '127.0.0.0/8',
  // Link-local, with the metadata services of clouds (169.254.169.254), which give out credentials of the machine.
  '169.254.0.0/16',
  // Multicast, reserved, broadcast.
  '224.0.0.0/3',
].map(ipv4Network);

/** Not part of the internet according to IANA's registry of special-purpose addresses. The operator may open parts. */
const SPECIAL_PURPOSE = [
  '10.0.0.0/8',
  '100.64.0.0/10',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
].map(ipv4Network);

/** How long the host's addresses are cached. A change in between is detected after dialling. */
const CACHE_MS = 500;

export interface ReachableOptions {
  /** Private networks that count as internet for every sandbox of this server. */
  readonly openNetworks: readonly Ipv4Network[];
  /** The addresses of the sandboxes of all servers. */
  readonly sandboxRanges: readonly Ipv4Network[];
  /** The kernel's routing tables as text (`/proc/net/fib_trie`). */
  readonly readRoutes: () => string;
  readonly clock: Clock;
}

export type Unreachable = 'host_address' | 'sandbox_address' | 'private_address';

export class Reachable {
  readonly #options: ReachableOptions;
  #host: { readonly at: number; readonly networks: readonly Ipv4Network[] } | undefined;

  constructor(options: ReachableOptions) {
    this.#options = options;
  }

  /** Undefined when the address is reachable. */
  reasonUnreachable(address: number): Unreachable | undefined {
    const { sandboxRanges, openNetworks } = this.#options;
    const isIn = (networks: readonly Ipv4Network[]) => networks.some((network) => contains(network, address));
    if (isIn(sandboxRanges)) return 'sandbox_address';
    if (isIn(this.#hostNetworks())) return 'host_address';
    if (isIn(NEVER_REACHABLE) || (isIn(SPECIAL_PURPOSE) && !isIn(openNetworks))) return 'private_address';
    return undefined;
  }

  #hostNetworks(): readonly Ipv4Network[] {
    const at = this.#options.clock.monotonic();
    if (this.#host === undefined || at - this.#host.at > CACHE_MS) {
      this.#host = { at, networks: parseLocalNetworks(this.#options.readRoutes()) };
    }
    return this.#host.networks;
  }
}

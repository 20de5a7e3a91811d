/**
 * Which addresses sandboxes can reach at all, before any policy: the public internet, and the networks that the
 * operator of the server opened to all of them. The lists of a sandbox never add to this.
 */
import type { Clock } from '@torpor/engine';
import { parseLocalNetworks } from './host-networks.ts';
import { contains, type Ipv4Network, ipv4Network } from './ipv4.ts';

/** What no setting opens: this machine, and what answers only because a packet comes from this machine. */
const NEVER = [
  '0.0.0.0/8',
  '127.0.0.0/8',
  // Link-local, where clouds keep the credentials of the machine (169.254.169.254).
  '169.254.0.0/16',
  // Multicast, reserved, broadcast.
  '224.0.0.0/3',
].map(ipv4Network);

/** Not of the internet, by IANA's registry of special addresses. The operator may open parts of these. */
const SPECIAL = [
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

/** How long what the kernel said of its addresses is believed; what changes meanwhile is caught after dialling. */
const BELIEVED_MS = 500;

export interface ReachableOptions {
  /** Private networks that count as internet for every sandbox of this server. */
  readonly openNetworks: readonly Ipv4Network[];
  /** Where sandboxes of this and other servers have their addresses. */
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

  /** Undefined when it can be reached. */
  whyNot(address: number): Unreachable | undefined {
    const { sandboxRanges, openNetworks } = this.#options;
    const isIn = (networks: readonly Ipv4Network[]) => networks.some((network) => contains(network, address));
    if (isIn(sandboxRanges)) return 'sandbox_address';
    if (isIn(this.#hostNetworks())) return 'host_address';
    if (isIn(NEVER) || (isIn(SPECIAL) && !isIn(openNetworks))) return 'private_address';
    return undefined;
  }

  #hostNetworks(): readonly Ipv4Network[] {
    const at = this.#options.clock.monotonic();
    if (this.#host === undefined || at - this.#host.at > BELIEVED_MS) {
      this.#host = { at, networks: parseLocalNetworks(this.#options.readRoutes()) };
    }
    return this.#host.networks;
  }
}

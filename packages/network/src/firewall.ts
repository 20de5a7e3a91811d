/**
 * The rules in a server's router: one nftables table, built in one transaction, that need not know the sandboxes:
 * every interface but the uplink is one's. What comes from a sandbox
 *
 * - must come from the one address that its interface leads to, or is dropped;
 * - may answer what the host began, and is forwarded for nothing else;
 * - is led to our egress port when it is TCP, wherever it was meant to go, and to our resolver when it is for
 *   the resolver's address;
 * - is rejected otherwise, so that programs hear of it at once: other UDP, ICMP, everything. (As an unreachable
 *   port: of other reasons gVisor tells the program nothing.)
 *
 * Chains that filter have the policy "drop": what no rule foresaw does not pass.
 */
import { UPLINK } from './router.ts';
import type { Slot } from './slots.ts';
import { farAddress, nearAddress } from './slots.ts';
import { runInNamespace } from './system-program.ts';

/** The resolver's address in every sandbox, the same in all, so that a restored one still knows where to ask. */
export const RESOLVER_ADDRESS = '169.254.53.53';

/** Where we listen in the router. Nobody else does, so that they can be the same every time. */
export const EGRESS_PORT = 4_080;
export const RESOLVER_PORT = 53;

export interface FirewallOptions {
  readonly netns: string;
  readonly uplink: Slot;
  /** Connections that one sandbox may have in our tables, and new ones in a second. */
  readonly connectionsPerSandbox: number;
  readonly newConnectionsPerSecond: number;
}

/** A datagram that was rejected: who sent it, and where it was meant to go. */
export interface RejectedDatagram {
  readonly from: string;
  readonly to: string;
  readonly port: number;
}

const TABLE = 'inet torpor';

export class Firewall {
  readonly #options: FirewallOptions;

  constructor(options: FirewallOptions) {
    this.#options = options;
  }

  /** Replaces whatever rules there were. */
  async build(): Promise<void> {
    await this.#apply([rules(this.#options)]);
  }

  /** No new connection to or from the sandbox until it is released. */
  async hold(slot: Slot): Promise<void> {
    await this.#apply([`add element ${TABLE} held { ${farAddress(slot)} }`]);
  }

  /** Absent is fine: what is added first can be deleted. */
  async release(slot: Slot): Promise<void> {
    const held = `element ${TABLE} held { ${farAddress(slot)} }`;
    await this.#apply([`add ${held}`, `delete ${held}`]);
  }

  /** Those since the last call, but for what comes in between the two commands. */
  async takeRejected(): Promise<RejectedDatagram[]> {
    const { netns } = this.#options;
    const set = ['set', ...TABLE.split(' '), 'rejected'];
    const rejected = parseRejected(await runInNamespace(netns, 'nft', ['-j', 'list', ...set]));
    if (rejected.length > 0) await runInNamespace(netns, 'nft', ['flush', ...set]);
    return rejected;
  }

  async #apply(lines: readonly string[]): Promise<void> {
    await runInNamespace(this.#options.netns, 'nft', ['-f', '-'], `${lines.join('\n')}\n`);
  }
}

/**
 * What a sandbox has closed is forgotten soon, as it would fill the table for two minutes otherwise; what is
 * only half closed may stay so for an hour. A packet of an unknown connection that does not begin one is
 * answered with a reset: it belongs to a time before a restore.
 */
function rules(options: FirewallOptions): string {
  const { connectionsPerSandbox, newConnectionsPerSecond } = options;
  return `
add table ${TABLE}
delete table ${TABLE}
table ${TABLE} {
  set held { type ipv4_addr; }
  set crowd { type ipv4_addr; size 65535; flags dynamic; }
  set pace { type ipv4_addr; size 65535; flags dynamic,timeout; timeout 10s; }
  set rejected { type ipv4_addr . ipv4_addr . inet_service; size 4096; flags dynamic,timeout; timeout 1m; }
  ct timeout brief_tcp {
    protocol tcp; l3proto ip
    policy = { syn_sent: 20, syn_recv: 20, fin_wait: 3600, close_wait: 3600, last_ack: 10, time_wait: 3, close: 3 }
  }
  ct timeout brief_udp {
    protocol udp; l3proto ip
    policy = { unreplied: 10, replied: 10 }
  }
  chain arrival {
    type filter hook prerouting priority mangle; policy drop;
    iifname "lo" accept
    iifname "${UPLINK}" jump from_host
    iifname != "${UPLINK}" jump from_guest
  }
  chain from_host {
    ip saddr != ${nearAddress(options.uplink)} drop
    ip daddr @held ct state new meta l4proto tcp reject with tcp reset
    meta nfproto ipv4 accept
  }
  chain from_guest {
    fib saddr . iif oif missing drop
    ct state established ct direction reply accept
    meta l4proto tcp jump from_guest_tcp
    ip daddr ${RESOLVER_ADDRESS} udp dport 53 jump from_guest_dns
    meta l4proto udp update @rejected { ip saddr . ip daddr . udp dport }
    reject with icmp port-unreachable
  }
  chain from_guest_tcp {
    ct state established accept
    ct state invalid drop
    tcp flags & (fin | syn | rst | ack) != syn reject with tcp reset
    ip saddr @held reject with tcp reset
    add @crowd { ip saddr ct count over ${connectionsPerSandbox} } reject with tcp reset
    ${pace(newConnectionsPerSecond)} reject with tcp reset
    ct timeout set "brief_tcp" accept
  }
  chain from_guest_dns {
    ${pace(newConnectionsPerSecond)} reject with icmp port-unreachable
    ct timeout set "brief_udp" accept
  }
  chain lead {
    type nat hook prerouting priority dstnat; policy accept;
    iifname { "lo", "${UPLINK}" } return
    ip daddr ${RESOLVER_ADDRESS} meta l4proto { tcp, udp } th dport 53 redirect to :${RESOLVER_PORT}
    meta l4proto tcp redirect to :${EGRESS_PORT}
  }
  chain local {
    type filter hook input priority filter; policy drop;
    iifname != "${UPLINK}" ct status dnat tcp dport { ${EGRESS_PORT}, ${RESOLVER_PORT} } accept
    iifname != "${UPLINK}" ct status dnat udp dport ${RESOLVER_PORT} accept
    meta l4proto tcp reject with tcp reset
    reject with icmp admin-prohibited
  }
  chain passage {
    type filter hook forward priority filter; policy drop;
    iifname "${UPLINK}" oifname != "${UPLINK}" meta l4proto tcp accept
    oifname "${UPLINK}" ct state established ct direction reply accept
    reject with icmp admin-prohibited
  }
}`;
}

function pace(perSecond: number): string {
  return `update @pace { ip saddr limit rate over ${perSecond}/second burst ${2 * perSecond} packets }`;
}

interface RejectedListing {
  readonly nftables: readonly {
    readonly set?: {
      readonly elem?: readonly {
        readonly elem: { readonly val: { readonly concat: [string, string, number] } };
      }[];
    };
  }[];
}

function parseRejected(listing: string): RejectedDatagram[] {
  const elements = (JSON.parse(listing) as RejectedListing).nftables.flatMap(({ set }) => set?.elem ?? []);
  return elements.map(({ elem }) => {
    const [from, to, port] = elem.val.concat;
    return { from, to, port };
  });
}

/**
 * The firewall of a server's router: one nftables table, installed in one transaction. The rules do not list sandboxes,
 * because every interface except the uplink belongs to one. A packet from a sandbox
 *
 * - is dropped unless its source is the address of the sandbox on that interface;
 * - is forwarded only as a reply to a connection from the host;
 * - is redirected to the egress port when it is TCP, whatever its destination, or to the resolver when it is for the
 *   resolver's address;
 * - is rejected otherwise (other UDP, ICMP and the rest), so that programs fail at once. The rejection is "port
 *   unreachable", because gVisor does not pass other reasons on to the program.
 *
 * All filter chains have the policy "drop" for packets that no rule matches.
 */
import { z } from 'zod';
import { UPLINK } from './router.ts';
import type { Slot } from './slots.ts';
import { farAddress, nearAddress } from './slots.ts';
import { runInNamespace } from './system-program.ts';

/** The address of the resolver, the same in all sandboxes, so that a restored sandbox still has the right one. */
export const RESOLVER_ADDRESS = '169.254.53.53';

/** The ports in the router. They are fixed, because no other program listens in the router. */
export const EGRESS_PORT = 4_080;
export const RESOLVER_PORT = 53;

export interface FirewallOptions {
  readonly netns: string;
  readonly uplink: Slot;
  /** Limit of tracked connections of one sandbox. The next field limits new ones per second. */
  readonly connectionsPerSandbox: number;
  readonly newConnectionsPerSecond: number;
}

/** Source and destination of a rejected datagram. */
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

  /** Replaces all rules of an earlier process. */
  async build(): Promise<void> {
    await this.#apply([rules(this.#options)]);
  }

  /** Refuses new connections to and from the sandbox until `release`. */
  async hold(slot: Slot): Promise<void> {
    await this.#apply([`add element ${TABLE} held { ${farAddress(slot)} }`]);
  }

  /** Adds before it deletes, because deleting a missing element fails. */
  async release(slot: Slot): Promise<void> {
    const held = `element ${TABLE} held { ${farAddress(slot)} }`;
    await this.#apply([`add ${held}`, `delete ${held}`]);
  }

  /** The datagrams since the last call. Those between the two commands are lost. */
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
 * Closed connections of a sandbox are forgotten after seconds; the default of two minutes would fill the table. Half-closed
 * connections are kept for an hour. A packet of an unknown connection that is not a SYN gets a reset: it belongs to a
 * connection from before a restore.
 */
function rules(options: FirewallOptions): string {
  const { connectionsPerSandbox, newConnectionsPerSecond } = options;
  return `
add table ${TABLE}
delete table ${TABLE}
table ${TABLE} {
  set held { type ipv4_addr; }
  set connections { type ipv4_addr; size 65535; flags dynamic; }
  set new_connections { type ipv4_addr; size 65535; flags dynamic,timeout; timeout 10s; }
  set rejected { type ipv4_addr . ipv4_addr . inet_service; size 4096; flags dynamic,timeout; timeout 1m; }
  ct timeout brief_tcp {
    protocol tcp; l3proto ip
    policy = { syn_sent: 20, syn_recv: 20, fin_wait: 3600, close_wait: 3600, last_ack: 10, time_wait: 3, close: 3 }
  }
  ct timeout brief_udp {
    protocol udp; l3proto ip
    policy = { unreplied: 10, replied: 10 }
  }
  chain check_source {
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
    add @connections { ip saddr ct count over ${connectionsPerSandbox} } reject with tcp reset
    ${rateLimit(newConnectionsPerSecond)} reject with tcp reset
    ct timeout set "brief_tcp" accept
  }
  chain from_guest_dns {
    ${rateLimit(newConnectionsPerSecond)} reject with icmp port-unreachable
    ct timeout set "brief_udp" accept
  }
  chain redirect_to_server {
    type nat hook prerouting priority dstnat; policy accept;
    iifname { "lo", "${UPLINK}" } return
    ip daddr ${RESOLVER_ADDRESS} meta l4proto { tcp, udp } th dport 53 redirect to :${RESOLVER_PORT}
    meta l4proto tcp redirect to :${EGRESS_PORT}
  }
  chain to_router {
    type filter hook input priority filter; policy drop;
    iifname != "${UPLINK}" ct status dnat tcp dport { ${EGRESS_PORT}, ${RESOLVER_PORT} } accept
    iifname != "${UPLINK}" ct status dnat udp dport ${RESOLVER_PORT} accept
    meta l4proto tcp reject with tcp reset
    reject with icmp admin-prohibited
  }
  chain forward {
    type filter hook forward priority filter; policy drop;
    iifname "${UPLINK}" oifname != "${UPLINK}" meta l4proto tcp accept
    oifname "${UPLINK}" ct state established ct direction reply accept
    reject with icmp admin-prohibited
  }
}`;
}

function rateLimit(perSecond: number): string {
  return `update @new_connections { ip saddr limit rate over ${perSecond}/second burst ${2 * perSecond} packets }`;
}

/** The part of `nft -j list set` that is read. */
const rejectedSchema = z.object({
  nftables: z.array(
    z.object({
      set: z
        .object({
          elem: z
            .array(
              z.object({
                elem: z.object({ val: z.object({ concat: z.tuple([z.string(), z.string(), z.int()]) }) }),
              }),
            )
            .optional(),
        })
        .optional(),
    }),
  ),
});

function parseRejected(listing: string): RejectedDatagram[] {
  const elements = rejectedSchema.parse(JSON.parse(listing)).nftables.flatMap(({ set }) => set?.elem ?? []);
  return elements.map(({ elem }) => {
    const [from, to, port] = elem.val.concat;
    return { from, to, port };
  });
}

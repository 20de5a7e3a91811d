/**
 * The router of a server: a network namespace of our own between the host and its sandboxes.
 *
 * Every sandbox's interface ends here and not on the host, which makes the important things true without any
 * rule: there is no service of the host in it to reach; it has routes to the sandboxes and to the host's end
 * of the uplink and to nothing else; the host's own firewall (Docker's, ufw's, one that is being reloaded)
 * neither stops sandboxes nor opens anything to them; and its connection tracking table holds the sandboxes'
 * connections only, so that they cannot fill the host's, and so that reading it is cheap.
 *
 *     host ── tp0ad50400 ═ uplink ── router ── tp0ad50404 ═ eth0 ── sandbox
 *             10.213.4.1   10.213.4.2          10.213.4.5   10.213.4.6
 *
 * Everything here may be done again on a router that is there already.
 */
import { access, writeFile } from 'node:fs/promises';
import { errnoOf } from '@torpor/host';
import { formatIpv4Network, type Ipv4Network } from './ipv4.ts';
import { isLiveNamespace, removeNamespaces } from './namespaces.ts';
import { farAddress, interfaceName, nearAddress, SLOT_BITS, type Slot, slotOfInterface } from './slots.ts';
import { runInNamespace, runSystemProgram } from './system-program.ts';

/** What the router calls its end of the uplink. */
export const UPLINK = 'uplink';

export interface Router {
  readonly netns: string;
  /** The host has the near end of the uplink, the router the far one. */
  readonly uplink: Slot;
  readonly mtu: number;
}

/** An interface of the router that leads to a sandbox. */
export interface SandboxLink {
  readonly slot: Slot;
  /** The instance it was made for; absent when its making was cut short. */
  readonly instance: string | undefined;
}

/**
 * Answers only for the addresses of the interface that was asked, believes no redirect and no source that it
 * would not send to, and knows no IPv6 (a kernel without it has no such files). What a server that was killed has
 * left half closed stays for an hour, so that the next one can reset it.
 */
const ROUTER_SETTINGS = `
for which in all default; do
  cd /proc/sys/net/ipv4/conf/$which
  echo 1 > arp_ignore; echo 1 > rp_filter
  echo 0 > accept_redirects; echo 0 > send_redirects; echo 0 > accept_source_route
  v6=/proc/sys/net/ipv6/conf/$which/disable_ipv6
  if [ -e $v6 ]; then echo 1 > $v6; fi
done
echo 3600 > /proc/sys/net/ipv4/tcp_fin_timeout
exec ip -batch -`;

/**
 * Half-closed connections from the host stay known for a day, so that one which the sandbox never closes can
 * be found and reset before a checkpoint.
 */
const FORWARDING = `
cd /proc/sys/net/netfilter
echo 86400 > nf_conntrack_tcp_timeout_close_wait; echo 86400 > nf_conntrack_tcp_timeout_fin_wait
echo 1 > /proc/sys/net/ipv4/ip_forward`;

/** Nothing passes through it yet. */
export async function makeRouter(router: Router): Promise<void> {
  const { netns, uplink, mtu } = router;
  const link = interfaceName(uplink);
  const lines: string[] = [];
  if (!(await isLiveNamespace(netns))) {
    await removeNamespaces([netns]);
    lines.push(`netns add ${netns}`);
  }
  if (!(await hostHasInterface(link))) {
    lines.push(`link add ${link} mtu ${mtu} type veth peer name ${UPLINK} netns ${netns}`);
  }
  await batch(lines);
  await closeHostEnd(link);
  await batch([`addr replace ${nearAddress(uplink)}/${SLOT_BITS} dev ${link}`, `link set ${link} up`]);
  const inside = [
    'link set lo up',
    `addr replace ${farAddress(uplink)}/${SLOT_BITS} dev ${UPLINK}`,
    `link set ${UPLINK} mtu ${mtu} up`,
  ];
  await runInNamespace(netns, 'sh', ['-ec', ROUTER_SETTINGS], lineByLine(inside));
}

/** To be called when the firewall stands. */
export async function startForwarding({ netns }: Router): Promise<void> {
  await runInNamespace(netns, 'sh', ['-ec', FORWARDING]);
}

/** Leads the host to the sandboxes of a block. */
export async function addBlockRoute({ uplink }: Router, block: Ipv4Network): Promise<void> {
  const via = `via ${farAddress(uplink)} dev ${interfaceName(uplink)} src ${nearAddress(uplink)}`;
  await batch([`route replace ${formatIpv4Network(block)} ${via}`]);
}

export async function sandboxLinks({ netns }: Router): Promise<SandboxLink[]> {
  const listing = await runInNamespace(netns, 'ip', ['-j', 'link', 'show']);
  const links = JSON.parse(listing) as readonly { readonly ifname: string; readonly ifalias?: string }[];
  return links.flatMap(({ ifname, ifalias }) => {
    const slot = slotOfInterface(ifname);
    return slot === undefined ? [] : [{ slot, instance: ifalias }];
  });
}

export async function removeLink({ netns }: Router, slot: Slot): Promise<void> {
  await runInNamespace(netns, 'ip', ['link', 'del', interfaceName(slot)]);
}

/** Takes the interfaces of its sandboxes with it. */
export async function removeRouter({ netns, uplink }: Pick<Router, 'netns' | 'uplink'>): Promise<void> {
  const link = interfaceName(uplink);
  if (await hostHasInterface(link)) await batch([`link del ${link}`]);
  await removeNamespaces([netns]);
}

export function hostHasInterface(name: string): Promise<boolean> {
  return access(`/sys/class/net/${name}`).then(
    () => true,
    () => false,
  );
}

/** The host speaks no IPv6 on the uplink, and passes nothing on that comes from there, router or not. */
async function closeHostEnd(link: string): Promise<void> {
  await writeFile(`/proc/sys/net/ipv4/conf/${link}/forwarding`, '0');
  await writeFile(`/proc/sys/net/ipv4/conf/${link}/accept_redirects`, '0');
  await writeFile(`/proc/sys/net/ipv6/conf/${link}/disable_ipv6`, '1').catch((thrown: unknown) => {
    if (errnoOf(thrown) !== 'ENOENT') throw thrown;
  });
}

async function batch(lines: readonly string[]): Promise<void> {
  if (lines.length > 0) await runSystemProgram('ip', ['-batch', '-'], lineByLine(lines));
}

function lineByLine(lines: readonly string[]): string {
  return lines.map((line) => `${line}\n`).join('');
}

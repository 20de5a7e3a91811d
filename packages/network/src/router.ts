/**
 * The router of a server: a network namespace between the host and its sandboxes.
 *
 * The interface of every sandbox ends in the router and not on the host. So these hold without any firewall rule: no service
 * of the host listens in the router; the router has routes only to the sandboxes and to the host's end of the uplink; the
 * host's own firewall (Docker's, ufw's, or one that is being reloaded) neither blocks sandboxes nor opens anything to them;
 * and the connection tracking table has only connections of sandboxes, so that sandboxes cannot fill the host's table and
 * reading it is cheap.
 *
 *     host ── tp0ad50400 ═ uplink ── router ── tp0ad50404 ═ eth0 ── sandbox
 *             10.213.4.1   10.213.4.2          10.213.4.5   10.213.4.6
 *
 * All functions may be repeated on an existing router.
 */
import { access, writeFile } from 'node:fs/promises';
import { isMissing } from '@torpor/host';
import { z } from 'zod';
import { formatIpv4Network, type Ipv4Network } from './ipv4.ts';
import { isLiveNamespace, removeNamespaces } from './namespaces.ts';
import { farAddress, interfaceName, nearAddress, SLOT_BITS, type Slot, slotOfInterface } from './slots.ts';
import { runInNamespace, runSystemProgram } from './system-program.ts';

/** The name of the router's end of the uplink. */
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
  /** The name of the instance. Undefined when the creation was interrupted. */
  readonly instance: string | undefined;
}

/**
 * The router answers ARP only for addresses of the asked interface, ignores redirects, and drops packets whose source it
 * would not route back. IPv6 is off (a kernel without IPv6 has no such files). Connections that a killed server left
 * half-closed are kept for an hour, so that the next server can reset them.
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
 * Half-closed connections from the host are tracked for a day, so that a connection that the sandbox never closes is found and
 * reset before a checkpoint.
 */
const FORWARDING = `
cd /proc/sys/net/netfilter
echo 86400 > nf_conntrack_tcp_timeout_close_wait; echo 86400 > nf_conntrack_tcp_timeout_fin_wait
echo 1 > /proc/sys/net/ipv4/ip_forward`;

/** Creates the router. It does not forward packets yet. */
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

/** Called when the firewall is installed. */
export async function startForwarding({ netns }: Router): Promise<void> {
  await runInNamespace(netns, 'sh', ['-ec', FORWARDING]);
}

/** Routes the host's packets for a block to the router. */
export async function addBlockRoute({ uplink }: Router, block: Ipv4Network): Promise<void> {
  const via = `via ${farAddress(uplink)} dev ${interfaceName(uplink)} src ${nearAddress(uplink)}`;
  await batch([`route replace ${formatIpv4Network(block)} ${via}`]);
}

const linksSchema = z.array(z.object({ ifname: z.string(), ifalias: z.string().optional() }));

export async function sandboxLinks({ netns }: Router): Promise<SandboxLink[]> {
  const listing = await runInNamespace(netns, 'ip', ['-j', 'link', 'show']);
  const links = linksSchema.parse(JSON.parse(listing));
  return links.flatMap(({ ifname, ifalias }) => {
    const slot = slotOfInterface(ifname);
    return slot === undefined ? [] : [{ slot, instance: ifalias }];
  });
}

export async function removeLink({ netns }: Router, slot: Slot): Promise<void> {
  await runInNamespace(netns, 'ip', ['link', 'del', interfaceName(slot)]);
}

/** Also removes the interfaces of its sandboxes. */
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

/** Turns off IPv6 and forwarding for the host's end of the uplink, even if the host is a router. */
async function closeHostEnd(link: string): Promise<void> {
  await writeFile(`/proc/sys/net/ipv4/conf/${link}/forwarding`, '0');
  await writeFile(`/proc/sys/net/ipv4/conf/${link}/accept_redirects`, '0');
  await writeFile(`/proc/sys/net/ipv6/conf/${link}/disable_ipv6`, '1').catch((thrown: unknown) => {
    if (!isMissing(thrown)) throw thrown;
  });
}

async function batch(lines: readonly string[]): Promise<void> {
  if (lines.length > 0) await runSystemProgram('ip', ['-batch', '-'], lineByLine(lines));
}

function lineByLine(lines: readonly string[]): string {
  return lines.map((line) => `${line}\n`).join('');
}

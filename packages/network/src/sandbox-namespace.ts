/**
 * The network namespace of one instance: a loopback and `eth0`, whose other end is in the router.
 *
 * gVisor copies address and route from `eth0` when it starts or restores, and removes them from the namespace's own network
 * stack. So they are set before every start, and never while the sandbox runs: the stack would reset the sandbox's
 * connections.
 */
import { namespaceNames, removeNamespaces } from './namespaces.ts';
import { type Router, sandboxLinks } from './router.ts';
import {
  farAddress,
  farHardware,
  interfaceName,
  nearAddress,
  nearHardware,
  SLOT_BITS,
  type Slot,
} from './slots.ts';
import { runInNamespace } from './system-program.ts';

export interface SandboxNamespace {
  readonly netns: string;
  readonly slot: Slot;
}

/** The alias of the interface in the router is the instance's name, by which it is found again. */
export async function makeSandboxNamespace(router: Router, { netns, slot }: SandboxNamespace): Promise<void> {
  const link = interfaceName(slot);
  const near = `${link} address ${nearHardware(slot)} mtu ${router.mtu}`;
  const far = `eth0 address ${farHardware(slot)} mtu ${router.mtu}`;
  const lines = [
    `netns add ${netns}`,
    `link add ${near} type veth peer name ${far} netns ${netns}`,
    `link set dev ${link} alias ${netns}`,
    `addr add ${nearAddress(slot)}/${SLOT_BITS} dev ${link}`,
    `link set ${link} up`,
    // Fixed neighbour entries on both sides: an ARP exchange would delay the first packets after a resume.
    `neigh replace ${farAddress(slot)} lladdr ${farHardware(slot)} dev ${link} nud permanent`,
  ];
  await runInNamespace(router.netns, 'ip', ['-batch', '-'], `${lines.join('\n')}\n`);
}

/** Prevents automatic IPv6 addresses. */
export async function setAddresses({ netns, slot }: SandboxNamespace): Promise<void> {
  const lines = [
    'link set lo up',
    'link set eth0 addrgenmode none',
    `addr replace ${farAddress(slot)}/${SLOT_BITS} dev eth0`,
    'link set eth0 up',
    `neigh replace ${nearAddress(slot)} lladdr ${nearHardware(slot)} dev eth0 nud permanent`,
    `route replace default via ${nearAddress(slot)} dev eth0`,
  ];
  await runInNamespace(netns, 'ip', ['-batch', '-'], `${lines.join('\n')}\n`);
}

/** Ignores a missing namespace. A process that still runs inside loses its connections with the interface. */
export async function removeSandboxNamespace(router: Router, netns: string, slot?: Slot): Promise<void> {
  if (slot === undefined) return removeNamespaces([netns]);
  const lines = `link del ${interfaceName(slot)}\nnetns del ${netns}\n`;
  await runInNamespace(router.netns, 'ip', ['-force', '-batch', '-'], lines).catch(
    async (thrown: unknown) => {
      const isLeft = (await sandboxLinks(router)).some((link) => link.slot === slot);
      if (isLeft || (await namespaceNames(netns)).includes(netns)) throw thrown;
    },
  );
}

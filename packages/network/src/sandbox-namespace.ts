/**
 * The network namespace of one instance: a loopback and `eth0`, whose other end is in the router.
 *
 * gVisor takes address and route over from `eth0` when it starts or restores, and takes them away from the
 * namespace's own stack. So they are set before every start, and never under a sandbox that runs: the stack
 * would answer its connections with resets.
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

/** The interface in the router carries the instance's name, which is how it is found again. */
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
    // A sandbox that wakes is not asked first who it is, nor has it to ask: each would take it a turn more.
    `neigh replace ${farAddress(slot)} lladdr ${farHardware(slot)} dev ${link} nud permanent`,
  ];
  await runInNamespace(router.netns, 'ip', ['-batch', '-'], `${lines.join('\n')}\n`);
}

/** No IPv6 address comes up by itself. */
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

/** Absent is fine. A process that is still inside is cut off, because the interface goes. */
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

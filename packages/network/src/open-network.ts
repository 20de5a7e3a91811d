/** Opens a `SandboxNetwork`, and takes over what an earlier process with the same data directory left in the kernel. */
import { readFile } from 'node:fs/promises';
import { type Clock, systemClock } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import { AddressBlocks, type Owner } from './address-blocks.ts';
import type { AttachedInstance } from './attached-instance.ts';
import { ConnectionResets } from './connection-resets.ts';
import { Egress } from './egress.ts';
import type { FindSecrets } from './egress-connection.ts';
import { Firewall } from './firewall.ts';
import { hostNetworks, readRoutes } from './host-networks.ts';
import { type Ipv4Network, parseIpv4Network } from './ipv4.ts';
import { HostLookUp, type LookUp } from './look-up.ts';
import { EgressAuthority } from './opened/egress-authority.ts';
import { OpenedConnections } from './opened/opened-connections.ts';
import { OriginalDestinations, type ReadTable, tableReader } from './original-destinations.ts';
import { Reachable } from './reachable.ts';
import { type Refusal, Refusals } from './refusals.ts';
import { Resolver } from './resolver.ts';
import {
  addBlockRoute,
  hostHasInterface,
  makeRouter,
  type Router,
  removeLink,
  type SandboxLink,
  sandboxLinks,
  startForwarding,
} from './router.ts';
import { closeRouterSockets, openRouterSockets, type RouterSockets } from './router-sockets.ts';
import { attachedInstances, SandboxNetwork } from './sandbox-network.ts';
import { SlotPool } from './slot-pool.ts';
import { firstSlot, interfaceName } from './slots.ts';
import { routerName, sweepStaleClaims } from './stale-claims.ts';

interface NetworkLimits {
  readonly connectionsPerSandbox: number;
  readonly connectionsInAll: number;
  readonly newConnectionsPerSecond: number;
  /** How many bytes of a connection are read, and for how long, to find a name. */
  readonly peekBytes: number;
  readonly peekMs: number;
  /** A client that is silent for so long and needs no name is assumed to wait for the server. */
  readonly silenceMs: number;
  readonly dialMs: number;
}

const DEFAULT_LIMITS: NetworkLimits = {
  connectionsPerSandbox: 1_000,
  connectionsInAll: 8_000,
  newConnectionsPerSecond: 500,
  peekBytes: 16_384,
  peekMs: 5_000,
  silenceMs: 300,
  dialMs: 30_000,
};

/** The second range is for hosts with a route to all of 10.0.0.0/8. */
const DEFAULT_RANGES = ['10.213.0.0/16', '172.29.0.0/16'];

export const CLAIMS_DIRECTORY = '/run/torpor/addresses';

export interface SandboxNetworkOptions {
  readonly owner: Owner;
  readonly onRefusal: (refusal: Refusal) => void;
  /** The addresses of sandboxes. Several servers of a machine may share the same ranges. */
  readonly ranges?: readonly string[];
  /** Private networks that every sandbox may reach like the internet, such as one with a package mirror. */
  readonly openNetworks?: readonly string[];
  /** Finds the secrets that an instance uses. Absent: no instance can use any. */
  readonly findSecrets?: FindSecrets;
  /** Authorities beside Node's own, as PEM, that may sign certificates of servers to which secrets are sent. */
  readonly serverAuthorities?: readonly string[];
  readonly limits?: Partial<NetworkLimits>;
  readonly mtu?: number;
  readonly lookUp?: LookUp;
  readonly clock?: Clock;
  /** The directory of claims for the whole machine. */
  readonly claimsDirectory?: string;
}

/** What exists in the kernel before the parts of this process are created. */
interface KernelState {
  readonly router: Router;
  readonly slots: SlotPool;
  readonly links: readonly SandboxLink[];
  readonly sandboxRanges: readonly Ipv4Network[];
}

export async function openSandboxNetwork(options: SandboxNetworkOptions): Promise<SandboxNetwork> {
  if (process.getuid?.() !== 0) {
    throw new TorporError('capability_unsupported', 'Only root can make networks for sandboxes.');
  }
  const kernel = await openKernelState(options);
  const sockets = await openRouterSockets(kernel.router.netns);
  try {
    const readTable = tableReader(kernel.router.netns, sockets.conntrack);
    // Fails early on machines where the table cannot be read.
    await readTable();
    return await assemble(options, kernel, sockets, readTable);
  } catch (thrown) {
    await closeRouterSockets(sockets);
    throw thrown;
  }
}

async function openKernelState({
  owner,
  ranges,
  mtu = 1_500,
  claimsDirectory,
}: SandboxNetworkOptions): Promise<KernelState> {
  const sandboxRanges = networks(ranges ?? DEFAULT_RANGES);
  const bootId = (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
  const directory = claimsDirectory ?? CLAIMS_DIRECTORY;
  const addresses = new AddressBlocks({ directory, ranges: sandboxRanges, owner, bootId, hostNetworks });
  await sweepStaleClaims(addresses);
  const blocks = await claimedBlocks(addresses, owner);
  const router = { netns: routerName(owner.tag), uplink: await uplinkOf(blocks), mtu };
  await makeRouter(router);
  for (const block of blocks) await addBlockRoute(router, block);
  const links = await namedLinks(router);
  const used = new Set(links.map(({ slot }) => slot));
  const slots = new SlotPool(addresses, blocks, used, (block) => addBlockRoute(router, block));
  return { router, slots, links, sandboxRanges };
}

async function assemble(
  options: SandboxNetworkOptions,
  { router, slots, links, sandboxRanges }: KernelState,
  { egress, resolverStreams, resolverDatagrams, conntrack }: RouterSockets,
  readTable: ReadTable,
): Promise<SandboxNetwork> {
  const { owner, onRefusal, clock = systemClock, lookUp = new HostLookUp(clock) } = options;
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const firewall = await openFirewall(router, limits);
  const instances: Map<string, AttachedInstance> = attachedInstances(links);
  const find = (address: string) => instances.get(address);
  const refusals = new Refusals({ onRefusal, clock });
  const openNetworks = networks(options.openNetworks ?? []);
  const reachable = new Reachable({ openNetworks, sandboxRanges, readRoutes, clock });
  const shared = { reachable, lookUp, refusals, clock };
  const authority = new EgressAuthority(owner.dataDir, clock);
  const egressContext = {
    ...shared,
    opened: new OpenedConnections(authority, options.serverAuthorities),
    findSecrets: options.findSecrets ?? (async () => []),
    destinations: new OriginalDestinations(readTable),
    peek: { bytes: limits.peekBytes, ms: limits.peekMs },
    silenceMs: limits.silenceMs,
    dialMs: limits.dialMs,
  };
  const parts = {
    tag: owner.tag,
    router,
    slots,
    firewall,
    egress: new Egress(egress, find, egressContext, limits),
    resolver: new Resolver(resolverDatagrams, resolverStreams, find, shared),
    resets: new ConnectionResets({ netns: router.netns, readTable, clock }),
    refusals,
    authority,
    conntrack,
    clock,
  };
  return new SandboxNetwork(parts, instances);
}

async function openFirewall(router: Router, limits: NetworkLimits): Promise<Firewall> {
  const firewall = new Firewall({
    netns: router.netns,
    uplink: router.uplink,
    // Higher than the limit of the egress, which reports its refusals and should refuse first.
    connectionsPerSandbox: 2 * limits.connectionsPerSandbox,
    newConnectionsPerSecond: limits.newConnectionsPerSecond,
  });
  await firewall.build();
  await startForwarding(router);
  return firewall;
}

async function claimedBlocks(addresses: AddressBlocks, { tag, dataDir }: Owner): Promise<Ipv4Network[]> {
  const claims = await addresses.claims();
  const own = claims.filter((claim) => claim.tag === tag && claim.dataDir === dataDir && !claim.isStale);
  return own.length > 0 ? own.map(({ block }) => block) : [await addresses.claim()];
}

/** The slot of the present uplink if the router exists. */
async function uplinkOf(blocks: readonly Ipv4Network[]): Promise<number> {
  const slots = blocks.map(firstSlot);
  for (const slot of slots) if (await hostHasInterface(interfaceName(slot))) return slot;
  return slots[0] as number;
}

/** Removes links without an instance name, which an interrupted creation leaves. */
async function namedLinks(router: Router): Promise<SandboxLink[]> {
  const links = await sandboxLinks(router);
  for (const { slot, instance } of links) if (instance === undefined) await removeLink(router, slot);
  return links.filter(({ instance }) => instance !== undefined);
}

function networks(texts: readonly string[]): Ipv4Network[] {
  return texts.map((text) => {
    const network = parseIpv4Network(text);
    if (network !== undefined) return network;
    throw new TorporError('invalid_request', `Not an IPv4 network: ${text}.`, {
      hint: 'Write it as address and prefix: 10.213.0.0/16.',
    });
  });
}

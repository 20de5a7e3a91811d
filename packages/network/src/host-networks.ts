/** What the host itself is in the network: its addresses, and the networks that it has routes to. */
import { readFileSync } from 'node:fs';
import { type Ipv4Network, parseIpv4Network } from './ipv4.ts';
import { runSystemProgram } from './system-program.ts';

/** Shorter prefixes mean "everything", as do the halves of the internet by which tunnels take the default route. */
const SHORTEST_PREFIX = 4;

/** Of every routing table; the local one has the host's addresses too. */
export async function hostNetworks(): Promise<Ipv4Network[]> {
  const listing = await runSystemProgram('ip', ['-4', '-j', 'route', 'show', 'table', 'all']);
  const routes = JSON.parse(listing === '' ? '[]' : listing) as readonly { readonly dst?: string }[];
  return routes.flatMap(({ dst }) => {
    const network = dst === undefined ? undefined : parseIpv4Network(dst);
    return network === undefined || network.bits < SHORTEST_PREFIX ? [] : [network];
  });
}

/**
 * Which addresses the kernel takes for its own, by its routing tables at this moment. The list of interfaces
 * would not do: it leaves out those without a carrier, whose addresses answer all the same.
 */
export function readRoutes(): string {
  return readFileSync('/proc/net/fib_trie', 'latin1');
}

/** An address stands on its own line, and under it what it is in each table, with its prefix. */
export function parseLocalNetworks(table: string): Ipv4Network[] {
  const found: Ipv4Network[] = [];
  let address = '';
  for (const line of table.split('\n')) {
    const [, leaf] = /^\s*\|-- ([\d.]+)$/.exec(line) ?? [];
    if (leaf !== undefined) address = leaf;
    const [, prefix] = /^\s*(\/\d+) host LOCAL$/.exec(line) ?? [];
    const network = prefix === undefined ? undefined : parseIpv4Network(address + prefix);
    if (network !== undefined) found.push(network);
  }
  return found;
}

/** Reads the addresses of the host and the networks to which it has routes. */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { type Ipv4Network, parseIpv4Network } from './ipv4.ts';
import { runSystemProgram } from './system-program.ts';

const routesSchema = z.array(z.object({ dst: z.string().optional() }));

/** Shorter prefixes mean "everything": the default route, and the halves of the internet that VPN tunnels use in its place. */
const SHORTEST_PREFIX = 4;

/** The destinations of all routing tables. The local table contains the host's addresses. */
export async function hostNetworks(): Promise<Ipv4Network[]> {
  const listing = await runSystemProgram('ip', ['-4', '-j', 'route', 'show', 'table', 'all']);
  const routes = routesSchema.parse(JSON.parse(listing === '' ? '[]' : listing));
  return routes.flatMap(({ dst }) => {
    const network = dst === undefined ? undefined : parseIpv4Network(dst);
    return network === undefined || network.bits < SHORTEST_PREFIX ? [] : [network];
  });
}

/**
 * The present routing tables, which contain all addresses of the host. The list of interfaces is not enough: it leaves out
 * interfaces without a carrier, whose addresses answer all the same.
 */
export function readRoutes(): string {
  return readFileSync('/proc/net/fib_trie', 'latin1');
}

/** An address is on a line of its own. The lines below it give its prefix and its type in each table. */
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

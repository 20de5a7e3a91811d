/** What happens to the nodes of a cluster: one fault each, from its beginning until the node has everything again. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Random } from '../../seeded-random.ts';
import type { NodeLinks } from '../cluster-world.ts';
import type { LinkMode } from '../link.ts';
import { guardOf, type SupervisedNode } from './supervised-node.ts';

export interface Timing {
  readonly leaseMs: number;
  readonly stopMs: number;
}

const KINDS = [
  'server killed',
  'guard killed',
  'server stopped for a moment',
  'server stopped past its lease',
  'cut off from the database for a moment',
  'cut off from the database past its lease',
  'cut off from the store',
  'cut off from its peers',
  'cut off from everything for a moment',
  'cut off from everything past its lease',
  'stopped in order',
] as const;

type FaultKind = (typeof KINDS)[number];

export interface Fault {
  readonly kind: FaultKind;
  readonly forMs: number;
  /** What a link that is cut does. */
  readonly mode: LinkMode;
}

/** Every draw takes the same numbers from the generator, so that the faults of a seed do not depend on what happens. */
export function drawFault(random: Random, { leaseMs, stopMs }: Timing): Fault {
  const kind = random.of(KINDS);
  const isLong = kind.endsWith('past its lease');
  const moment = random.between(200, leaseMs - stopMs - 500);
  const long = leaseMs + random.between(0, 4_000);
  const mode = random.of(['silent', 'silent', 'refused'] as const);
  return { kind, forMs: isLong ? long : moment, mode };
}

/** Resolves when the fault is over. The node may still have to start again. */
export async function afflict(node: SupervisedNode, links: NodeLinks, fault: Fault): Promise<void> {
  const { kind, forMs, mode } = fault;
  const server = node.running;
  switch (kind) {
    case 'server killed':
      node.restartAfterMs = forMs;
      return server?.kill('SIGKILL');
    case 'stopped in order':
      return server?.kill('SIGTERM');
    case 'guard killed':
      if (server !== undefined) signal(await guardOf(server.dataDir), 'SIGKILL');
      return;
    case 'server stopped for a moment':
    case 'server stopped past its lease':
      if (server === undefined) return;
      signal(server.pid, 'SIGSTOP');
      await delay(forMs);
      // The guard has ended a server that was late, so there may be nothing to continue.
      signal(server.pid, 'SIGCONT');
      return;
    case 'cut off from the database for a moment':
    case 'cut off from the database past its lease':
      return cut([links.database], mode, forMs);
    case 'cut off from the store':
      return cut(links.store === undefined ? [] : [links.store], mode, forMs);
    case 'cut off from its peers':
      return cut([links.peers], mode, forMs);
    case 'cut off from everything for a moment':
    case 'cut off from everything past its lease':
      return cut(
        Object.values(links).filter((link) => link !== undefined),
        mode,
        forMs,
      );
  }
}

async function cut(links: readonly NodeLinks['peers'][], mode: LinkMode, forMs: number): Promise<void> {
  for (const link of links) link.set(mode);
  await delay(forMs);
  for (const link of links) link.set('open');
}

/** A process may have ended by itself. */
function signal(pid: number | undefined, name: NodeJS.Signals): void {
  try {
    if (pid !== undefined) process.kill(pid, name);
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== 'ESRCH') throw thrown;
  }
}

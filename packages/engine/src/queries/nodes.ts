/** Nodes as operators see them. */
import type { NodeView } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { type DrainProgress, findNode, isLive, listNodes, type Node } from '../nodes/node.ts';
import { noSuchNode, requireCluster } from '../nodes/operator.ts';

/** Empty on a server that is alone. */
export async function nodes(ctx: Context): Promise<NodeView[]> {
  if (!ctx.node.isClustered) return [];
  const found = await listNodes(ctx.db);
  const use = await useOf(ctx);
  return found.map((node) => viewNode(ctx, node, use.get(node.name)));
}

export async function node(ctx: Context, name: string): Promise<NodeView> {
  requireCluster(ctx);
  const found = await findNode(ctx.db, name);
  if (found === undefined || found.forgotten) throw noSuchNode(name);
  return viewNode(ctx, found, (await useOf(ctx)).get(name));
}

type Use = {
  readonly node: string;
  readonly running: number;
  readonly paused: number;
  readonly unknown: number;
  readonly memory_mb: number;
};

async function useOf(ctx: Context): Promise<Map<string, Use>> {
  const rows = await ctx.db.query<Use>(
    `SELECT node,
       CAST(SUM(CASE WHEN state <> 'paused' THEN 1 ELSE 0 END) AS {integer}) AS running,
       CAST(SUM(CASE WHEN state = 'paused' THEN 1 ELSE 0 END) AS {integer}) AS paused,
       CAST(SUM(CASE WHEN state = 'running' AND evidence = 'unknown' THEN 1 ELSE 0 END) AS {integer}) AS unknown,
       CAST(COALESCE(SUM(CASE WHEN state <> 'paused' THEN memory_mb ELSE 0 END), 0) AS {integer}) AS memory_mb
     FROM sandboxes WHERE state NOT IN ('killed', 'failed', 'lost') GROUP BY node`,
  );
  return new Map(rows.map((row) => [row.node, row]));
}

function viewDrain({
  startedAt,
  endedAt,
  moved,
  replicated,
  left,
  failures,
}: DrainProgress): NodeView['drain'] {
  return { startedAt, endedAt, moved, replicated, left, failures: [...failures] };
}

function viewNode(ctx: Context, node: Node, use: Use | undefined): NodeView {
  const { drain } = node;
  return {
    name: node.name,
    address: node.address,
    self: node.name === ctx.node.name,
    state: isLive(node) ? 'alive' : 'away',
    leaseUntil: node.leaseUntil,
    heldSince: node.heldSince,
    fencedAt: node.fencedAt,
    epoch: node.epoch,
    version: node.version,
    cordoned: node.cordoned,
    draining: node.draining,
    capacity: {
      memoryMb: node.memoryMb,
      processors: node.processors,
      diskBytes: node.diskBytes,
      cacheBytes: node.cacheLimitBytes,
    },
    used: {
      memoryMb: use?.memory_mb ?? 0,
      diskBytes: Math.max(0, node.diskBytes - node.diskFreeBytes),
      cacheBytes: node.cacheBytes,
      running: use?.running ?? 0,
      paused: use?.paused ?? 0,
      unknown: use?.unknown ?? 0,
    },
    fingerprint: { ...node.fingerprint },
    drain: drain === null ? null : viewDrain(drain),
  };
}

/**
 * What the other nodes do when the lease of a node has ended. One of them raises the epoch of the node, so that the
 * node can write nothing any more. Then its running sandboxes are given up one by one. The guard of the node has
 * ended their instances before the lease ended.
 *
 * Any node can repeat every step. Nothing more is done once the node is back.
 */
import { forEachBounded } from '@torpor/host';
import type { Context } from '../context.ts';
import type { Transaction } from '../ports/database.ts';
import { connectionNameOf } from '../ports/nodes.ts';
import { findSandbox, listSandboxes } from '../sandbox.ts';
import { inPages } from '../upkeep/pages.ts';
import { type GiveUp, giveUpSandbox } from './give-up.ts';
import { isLive, listNodes, type Node } from './node.ts';

/** One round: fences the nodes whose lease has ended, and gives up the sandboxes of fenced nodes. */
export async function fenceDeadNodes(ctx: Context): Promise<void> {
  const { node, settings } = ctx;
  if (!node.isClustered || node.fenced.aborted) return;
  const nodes = await listNodes(ctx.db);
  const self = nodes.find(({ name }) => name === node.name);
  if (self === undefined || !mayFence(self, settings.nodeLeaseMs)) return;
  for (const dead of nodes.filter((one) => one.name !== node.name && !isLive(one))) {
    const fenced = dead.fencedAt === null ? await raiseEpoch(ctx, dead) : dead;
    if (fenced === undefined) continue;
    await giveUpSandboxes(ctx, fenced, 'leave');
  }
}

/**
 * A node may fence others only after it has held its own lease for a whole term. While the database was away no node
 * could renew its lease, and the first node that is back must give the others time to come back too.
 */
function mayFence(self: Node, leaseMs: number): boolean {
  return isLive(self) && self.readAt - self.heldSince >= leaseMs;
}

/**
 * Undefined when the node is back, or another node has raised the epoch first. Waits for open transactions of the
 * node.
 */
async function raiseEpoch(ctx: Context, { name, epoch, leaseUntil }: Node): Promise<Node | undefined> {
  await endConnections(ctx, name);
  const raised = await ctx.db.transaction((tx) =>
    tx.query(
      `UPDATE nodes SET epoch = epoch + 1, fenced_at = {now}
       WHERE name = $1 AND epoch = $2 AND lease_until <= {now} AND forgotten = 0 AND fenced_at IS NULL RETURNING name`,
      [name, epoch],
    ),
  );
  if (raised.length === 0) return undefined;
  ctx.report('a node was fenced: its lease has ended', { node: name, epoch: epoch + 1, leaseUntil });
  ctx.directory.refresh();
  return (await listNodes(ctx.db)).find((one) => one.name === name);
}

/**
 * Ends the connections of a node to the database. The database does not notice for a while that a node was cut off,
 * and keeps the locks of its transactions, including the lock of the ledger, for which every other write waits. A
 * server that is back already connects again.
 */
async function endConnections({ db }: Context, name: string): Promise<void> {
  await db.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND usename = current_user AND application_name = $1
       AND EXISTS (SELECT 1 FROM nodes WHERE name = $2 AND lease_until <= {now})`,
    [connectionNameOf(name), name],
  );
}

/** How many sandboxes were lost, and how many continue from a checkpoint. */
export interface GivenUp {
  lost: number;
  kept: number;
}

/** Gives up what the node was running. `unreplicated` decides about a sandbox that no other node can start. */
export async function giveUpSandboxes(
  ctx: Context,
  dead: Pick<Node, 'name' | 'epoch' | 'leaseUntil'>,
  unreplicated: GiveUp['unreplicated'],
): Promise<GivenUp> {
  const states = ['creating', 'running', 'pausing', 'resuming', 'killing'] as const;
  const all = unreplicated === 'lose' ? ([...states, 'paused'] as const) : states;
  const sandboxes = inPages(
    (after, limit) => listSandboxes(ctx.db, { node: dead.name, states: all }, after, limit),
    ctx.settings.pageSize,
    ctx.stopping,
  );
  const counts: GivenUp = { lost: 0, kept: 0 };
  await forEachBounded(sandboxes, ctx.settings.hands, async ({ id }) => {
    try {
      const state = await ctx.db.transaction(async (tx) => {
        if (!(await isStillFenced(tx, dead))) return undefined;
        await giveUpSandbox(ctx, tx, id, { dead, unreplicated });
        return (await findSandbox(tx, id))?.state;
      });
      if (state === 'lost') counts.lost++;
      if (state === 'paused') counts.kept++;
    } catch (error) {
      ctx.report('giving up a sandbox of a node failed', { sandboxId: id, node: dead.name, error });
    }
  });
  return counts;
}

/** Locks the node's row, so that the node cannot come back before the commit. */
export async function isStillFenced(
  tx: Transaction,
  { name, epoch }: Pick<Node, 'name' | 'epoch'>,
): Promise<boolean> {
  const rows = await tx.query(
    'SELECT name FROM nodes WHERE name = $1 AND epoch = $2 AND fenced_at IS NOT NULL FOR SHARE',
    [name, epoch],
  );
  return rows.length > 0;
}

/** Rows of the servers that share a database. Each server renews its lease by a heartbeat. */
import type { Context } from '../context.ts';

/** Renews the lease of this server. No other server takes over its operations during the lease. */
export async function heartbeat(ctx: Context): Promise<void> {
  const now = ctx.clock.now();
  await ctx.db.transaction((tx) =>
    tx.query(
      `INSERT INTO servers (id, started_at, lease_until, node) VALUES ($1, $2, $3, $4)
       ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until`,
      [ctx.serverId, now, now + ctx.settings.serverLeaseMs, ctx.node.name],
    ),
  );
}

/** Where a node can have only one server, its other rows are of dead servers: their operations are taken over at once. */
export async function markDeadServers(ctx: Context): Promise<void> {
  if (!ctx.ownsDataDirectory) return;
  await ctx.db.transaction((tx) =>
    tx.query('DELETE FROM servers WHERE id <> $1 AND node = $2', [ctx.serverId, ctx.node.name]),
  );
}

/** A server that stops on purpose removes its row, so that its operations can be taken over at once. */
export async function deregisterServer(ctx: Context): Promise<void> {
  await ctx.db.transaction((tx) => tx.query('DELETE FROM servers WHERE id = $1', [ctx.serverId]));
}

/** Deletes rows of servers of this node whose lease ran out long ago. Other nodes may have other clocks. */
export async function deleteDeadServers(ctx: Context): Promise<void> {
  const before = ctx.clock.now() - 10 * ctx.settings.serverLeaseMs;
  await ctx.db.transaction((tx) =>
    tx.query('DELETE FROM servers WHERE lease_until < $1 AND node = $2', [before, ctx.node.name]),
  );
}

/** Rows of the servers that share a database. Each server renews its lease by a heartbeat. */
import { TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';

/** Renews the lease of this server. No other server takes over its operations during the lease. */
export async function heartbeat(ctx: Context): Promise<void> {
  const now = ctx.clock.now();
  await ctx.db.transaction((tx) =>
    tx.query(
      `INSERT INTO servers (id, started_at, lease_until) VALUES ($1, $2, $3)
       ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until`,
      [ctx.serverId, now, now + ctx.settings.serverLeaseMs],
    ),
  );
}

/** Where there can be only one server, all other rows are of dead servers: their operations are taken over at once. */
export async function markDeadServers(ctx: Context): Promise<void> {
  if (!ctx.ownsDataDirectory) return;
  await ctx.db.transaction((tx) => tx.query('DELETE FROM servers WHERE id <> $1', [ctx.serverId]));
}

/** A server that stops on purpose removes its row, so that its operations can be taken over at once. */
export async function deregisterServer(ctx: Context): Promise<void> {
  await ctx.db.transaction((tx) => tx.query('DELETE FROM servers WHERE id = $1', [ctx.serverId]));
}

/** Deletes rows of servers whose lease ran out long ago. */
export async function deleteDeadServers(ctx: Context): Promise<void> {
  const before = ctx.clock.now() - 10 * ctx.settings.serverLeaseMs;
  await ctx.db.transaction((tx) => tx.query('DELETE FROM servers WHERE lease_until < $1', [before]));
}

/** A server with another data directory would see none of these sandboxes, and must not conclude that they are gone. */
export async function claimHome(ctx: Context): Promise<void> {
  const home = await ctx.db.transaction(async (tx) => {
    await tx.query('INSERT INTO home (one, id) VALUES (1, $1) ON CONFLICT (one) DO NOTHING', [
      ctx.dataDirectoryId,
    ]);
    const [row] = await tx.query<{ id: string }>('SELECT id FROM home WHERE one = 1');
    return row?.id;
  });
  if (home === ctx.dataDirectoryId) return;
  throw new TorporError(
    'in_use',
    `This database belongs to another data directory (${home}, not ${ctx.dataDirectoryId}).`,
    {
      hint: 'Start the server with the data directory that this database was created with, or with another database.',
    },
  );
}

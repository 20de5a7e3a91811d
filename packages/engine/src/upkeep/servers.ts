/** The servers that share a database, each kept alive by a heartbeat. */
import { TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';

/** Says that this server lives. Its operations are nobody else's for as long as the lease. */
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

/** Where there can be only one server, whatever an earlier one left is taken up at once. */
export async function markDeadServers(ctx: Context): Promise<void> {
  if (!ctx.alone) return;
  await ctx.db.transaction((tx) => tx.query('DELETE FROM servers WHERE id <> $1', [ctx.serverId]));
}

/** A server that stops on purpose hands its operations on at once. */
export async function deregisterServer(ctx: Context): Promise<void> {
  await ctx.db.transaction((tx) => tx.query('DELETE FROM servers WHERE id = $1', [ctx.serverId]));
}

/** Rows of servers that are long dead and own nothing. */
export async function deleteDeadServers(ctx: Context): Promise<void> {
  const before = ctx.clock.now() - 10 * ctx.settings.serverLeaseMs;
  await ctx.db.transaction((tx) => tx.query('DELETE FROM servers WHERE lease_until < $1', [before]));
}

/** Whoever has another data directory would see none of these sandboxes, and must not touch them. */
export async function claimHome(ctx: Context): Promise<void> {
  const home = await ctx.db.transaction(async (tx) => {
    await tx.query('INSERT INTO home (one, id) VALUES (1, $1) ON CONFLICT (one) DO NOTHING', [ctx.home]);
    const [row] = await tx.query<{ id: string }>('SELECT id FROM home WHERE one = 1');
    return row?.id;
  });
  if (home === ctx.home) return;
  throw new TorporError(
    'in_use',
    `This database belongs to another data directory (${home}, not ${ctx.home}).`,
    {
      hint: 'Give the server the data directory that this database was made with, or a database of its own.',
    },
  );
}

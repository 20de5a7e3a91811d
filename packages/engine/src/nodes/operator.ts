/** What an operator does with nodes: cordon, uncordon, drain and forget. Any server can be asked about any node. */
import { TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';
import type { Transaction } from '../ports/database.ts';
import { giveUpUnfinished } from '../replication/objects.ts';
import { type GivenUp, giveUpSandboxes, isStillFenced } from './fence.ts';
import { findNode, isLive, lockNode, lockRoom, type Node } from './node.ts';

/** The node gets no new sandboxes. Its sleeping sandboxes wake on other nodes when these can start them. */
export async function cordonNode(ctx: Context, name: string): Promise<void> {
  await change(ctx, name, (tx) => tx.query('UPDATE nodes SET cordoned = 1 WHERE name = $1', [name]));
}

/** Ends a drain too. */
export async function uncordonNode(ctx: Context, name: string): Promise<void> {
  await change(ctx, name, (tx) =>
    tx.query('UPDATE nodes SET cordoned = 0, draining = 0, drain = NULL WHERE name = $1', [name]),
  );
}

/** The node itself does the work, in its rounds. A repeated request changes nothing. */
export async function beginDrain(
  ctx: Context,
  name: string,
  { untilRestart = false }: { readonly untilRestart?: boolean } = {},
): Promise<void> {
  await change(ctx, name, async (tx, node) => {
    if (!isLive(node)) throw isAway(node, 'A node that is away cannot move its sandboxes.');
    if (node.draining) return;
    const begun = { startedAt: node.readAt, endedAt: null, moved: 0, replicated: 0, left: 0, failures: [] };
    const drain = untilRestart ? { ...begun, untilRestart, wasCordoned: node.cordoned } : begun;
    await tx.query('UPDATE nodes SET cordoned = 1, draining = 1, drain = $2 WHERE name = $1', [
      name,
      JSON.stringify(drain),
    ]);
  });
}

/**
 * Gives up a node that will not come back. Its sandboxes continue from their newest replicated checkpoint; sandboxes
 * without one are lost. May be repeated until it has ended.
 */
export async function forgetNode(ctx: Context, name: string): Promise<GivenUp> {
  requireCluster(ctx);
  if (name === ctx.node.name) {
    throw new TorporError('conflict', `The node "${name}" is this one: it is alive.`, {
      hint: `Drain it (torpor node drain ${name}), stop its server, and ask another node.`,
    });
  }
  const dead = await ctx.db.transaction(async (tx) => {
    const node = await lockNode(tx, name);
    if (node === undefined) throw noSuchNode(name);
    if (isLive(node)) throw stillAlive(node);
    if (node.forgotten) return node;
    await tx.query('UPDATE nodes SET forgotten = 1, epoch = epoch + 1, fenced_at = {now} WHERE name = $1', [
      name,
    ]);
    return { ...node, epoch: node.epoch + 1 };
  });
  ctx.directory.refresh();
  const counts = await giveUpSandboxes(ctx, dead, 'lose');
  await ctx.db.transaction(async (tx) => {
    // A node that is back has what is on its disk, and may have new sandboxes.
    if (!(await isStillFenced(tx, dead))) throw isBack(name);
    await requireGivenUp(tx, name);
    const store = ctx.replicator?.replicas.url;
    if (store !== undefined) await giveUpUnfinished(tx, name, store);
    // The next inspection finds that what only its disk had is missing.
    for (const table of ['checkpoints', 'stored_objects', 'servers', 'sandboxes']) {
      await tx.query(`UPDATE ${table} SET node = $2 WHERE node = $1`, [name, ctx.node.name]);
    }
  });
  return counts;
}

function isBack(name: string): TorporError {
  return new TorporError('conflict', `The node "${name}" came back while it was being forgotten.`, {
    hint: `Sandboxes that were given up show what they lost. torpor node get ${name} shows the node.`,
    details: { node: name },
  });
}

/** A sandbox of which giving up has failed must not look as if it ran on another node. */
async function requireGivenUp(tx: Transaction, name: string): Promise<void> {
  const left = await tx.query(
    `SELECT id FROM sandboxes
     WHERE node = $1 AND state IN ('creating', 'running', 'pausing', 'resuming', 'killing')`,
    [name],
  );
  if (left.length === 0) return;
  throw new TorporError(
    'transitioning',
    `${left.length} sandboxes of the node "${name}" could not be given up.`,
    {
      hint: `Repeat it (torpor node forget ${name}). The log of this server says what has failed.`,
      details: { node: name, left: left.length },
    },
  );
}

async function change(
  ctx: Context,
  name: string,
  write: (tx: Transaction, node: Node) => Promise<unknown>,
): Promise<void> {
  requireCluster(ctx);
  await ctx.db.transaction(async (tx) => {
    await lockRoom(tx, name);
    const [locked] = await tx.query(
      'SELECT name FROM nodes WHERE name = $1 AND forgotten = 0 FOR NO KEY UPDATE',
      [name],
    );
    const node = locked === undefined ? undefined : await findNode(tx, name);
    if (node === undefined) throw noSuchNode(name);
    await write(tx, node);
  });
  ctx.directory.refresh();
}

export function requireCluster({ node }: Context): void {
  if (node.isClustered) return;
  throw new TorporError('capability_unsupported', 'This server is alone: it has no nodes.', {
    hint: 'docs/many-machines.md says how to run several.',
  });
}

export function noSuchNode(name: string): TorporError {
  return new TorporError('not_found', `There is no node "${name}".`, { details: { node: name } });
}

function stillAlive({ name, address }: Node): TorporError {
  return new TorporError('conflict', `The node "${name}" is alive, at ${address}.`, {
    hint: `Drain it first (torpor node drain ${name}), then stop its server and wait until its lease has ended.`,
    details: { node: name, address },
  });
}

function isAway({ name, leaseUntil }: Node, what: string): TorporError {
  return new TorporError(
    'unreachable',
    `The node "${name}" has not answered since ${new Date(leaseUntil).toISOString()}. ${what}`,
    { details: { node: name }, hint: `If it will not come back: torpor node forget ${name}` },
  );
}

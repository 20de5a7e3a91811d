/**
 * This server as one of several nodes: it joins under its name, renews the lease of the name, and learns when another
 * node has fenced it. A server without a name is alone: it owns the whole database, and runs no statement of this
 * file after its start.
 */
import { TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';
import type { Database, Transaction } from '../ports/database.ts';
import { type ClusterOptions, LOCAL_NODE } from '../ports/nodes.ts';
import { databaseNow, isLive, lockNode, type Node } from './node.ts';
import { moveFencedRuns } from './recovered-runs.ts';

/** The `home` of a database that nodes share. No data directory has this id. */
const SHARED_HOME = '(nodes)';

type JoinContext = Pick<
  Context,
  'clock' | 'settings' | 'report' | 'dataDirectoryId' | 'disk' | 'cache' | 'runtimes'
>;

export class Membership {
  readonly name: string;
  /** Absent on a server that is alone. */
  readonly cluster: ClusterOptions | undefined;
  /** Without the check of the epoch with which all other transactions begin. */
  readonly #db: Database;
  readonly #renewals: Database;
  readonly #fenced = new AbortController();
  #epoch = 0;
  #hasEarlierVersions = false;

  constructor(db: Database, cluster: ClusterOptions | undefined) {
    this.#db = db;
    this.#renewals = cluster?.renewals ?? db;
    this.cluster = cluster;
    this.name = cluster?.name ?? LOCAL_NODE;
  }

  get isClustered(): boolean {
    return this.cluster !== undefined;
  }

  get epoch(): number {
    return this.#epoch;
  }

  /**
   * Whether a node that was not forgotten has an earlier version, which reads no page layers. Known since the last renewal: a
   * node that joins later than that starts from the files of a checkpoint whose memory it cannot read.
   */
  get hasEarlierVersions(): boolean {
    return this.#hasEarlierVersions;
  }

  /** Fires when another node has raised the epoch. Nothing can be written any more. */
  get fenced(): AbortSignal {
    return this.#fenced.signal;
  }

  /** Takes the name, and adopts what this data directory had while its server was alone. */
  async join(ctx: JoinContext): Promise<void> {
    const { cluster } = this;
    if (cluster === undefined) return claimHome(this.#db, ctx.dataDirectoryId);
    await refuseWrongClock(this.#db, ctx);
    const sentAt = cluster.guard?.now();
    this.#epoch = await this.#db.transaction(async (tx) => {
      await claimSharedHome(tx, this.name, ctx.dataDirectoryId);
      await refuseSecondName(tx, this.name, ctx.dataDirectoryId);
      const epoch = await takeName(tx, cluster, ctx);
      this.#hasEarlierVersions = await lookForEarlierVersions(tx, this.name);
      return epoch;
    });
    await this.#extendGuard(sentAt, ctx);
  }

  /** Renews the lease, and records what the node has. When the epoch was raised meanwhile, the node is fenced. */
  async renew(ctx: JoinContext): Promise<void> {
    const { cluster } = this;
    if (cluster === undefined || this.fenced.aborted) return;
    // Read before the statement is sent: the guard must never take the lease for longer than the database does.
    const sentAt = cluster.guard?.now();
    const { totalBytes = 0, freeBytes = 0 } = ctx.disk.state ?? {};
    const cache = ctx.cache.state;
    const rows = await this.#renewals.transaction(async (tx) => {
      this.#hasEarlierVersions = await lookForEarlierVersions(tx, this.name);
      return tx.query(
        `UPDATE nodes SET lease_until = {now} + $4, disk_bytes = $5, disk_free_bytes = $6, fingerprint = $7, fenced_at = NULL,
           cache_bytes = $8, cache_limit_bytes = $9, reads_page_layers_since = joined_at,
           held_since = CASE WHEN lease_until > {now} THEN held_since ELSE {now} END
         WHERE name = $1 AND epoch = $2 AND data_directory_id = $3 AND forgotten = 0 RETURNING name`,
        [
          this.name,
          this.#epoch,
          ctx.dataDirectoryId,
          ctx.settings.nodeLeaseMs,
          totalBytes,
          freeBytes,
          fingerprintOf(ctx),
          cache?.bytes ?? null,
          cache?.limitBytes ?? null,
        ],
      );
    });
    if (rows.length === 0) return this.#onFenced(ctx);
    await this.#extendGuard(sentAt, ctx);
  }

  /** Throws when another node has raised the epoch. Otherwise no node can raise it before the commit. */
  async requireEpoch(tx: Transaction): Promise<void> {
    const rows = await tx.query('SELECT name FROM nodes WHERE name = $1 AND epoch = $2 FOR KEY SHARE', [
      this.name,
      this.#epoch,
    ]);
    if (rows.length === 0) throw new NodeFenced(this.name);
  }

  #onFenced({ report }: JoinContext): void {
    if (this.fenced.aborted) return;
    this.#fenced.abort(new NodeFenced(this.name));
    report('this node was fenced: another node has raised its epoch', {
      node: this.name,
      epoch: this.#epoch,
    });
    this.cluster?.onFenced?.();
  }

  async #extendGuard(sentAt: number | undefined, { settings }: JoinContext): Promise<void> {
    if (sentAt === undefined) return;
    await this.cluster?.guard?.extend(sentAt + settings.nodeLeaseMs - settings.nodeStopMs);
  }
}

/** This node may not write any more: another node has raised its epoch. */
export class NodeFenced extends TorporError {
  constructor(node: string) {
    super('unreachable', `The node "${node}" has lost its lease, and another node has fenced it.`, {
      details: { node },
      hint: 'Restart its server: it joins again, and keeps what it had as recovered checkpoints.',
    });
  }
}

/** What memory images of each runtime need of this machine, as JSON. */
function fingerprintOf({ runtimes }: Pick<Context, 'runtimes'>): string {
  const known = [...runtimes.values()].map((runtime) => [runtime.name, runtime.fingerprint?.() ?? '']);
  return JSON.stringify(Object.fromEntries(known));
}

/**
 * A server with another data directory would find none of these sandboxes, and must not conclude that they are gone.
 */
async function claimHome(db: Database, dataDirectoryId: string): Promise<void> {
  const home = await db.transaction((tx) => homeOf(tx, dataDirectoryId));
  if (home === dataDirectoryId) return;
  const [what, hint] =
    home === SHARED_HOME
      ? [
          'This database is shared by several nodes.',
          'Start the server with --node, or with another database.',
        ]
      : [
          `This database belongs to another data directory (${home}, not ${dataDirectoryId}).`,
          'Start the server with the data directory that this database was created with, or with another database.',
        ];
  throw new TorporError('in_use', what, { hint });
}

async function homeOf(tx: Transaction, claim: string): Promise<string | undefined> {
  await tx.query('INSERT INTO home (one, id) VALUES (1, $1) ON CONFLICT (one) DO NOTHING', [claim]);
  const [row] = await tx.query<{ id: string }>('SELECT id FROM home WHERE one = 1 {FOR UPDATE}');
  return row?.id;
}

/** A database of a server that was alone becomes a shared one when that server is the first to join. */
async function claimSharedHome(tx: Transaction, name: string, dataDirectoryId: string): Promise<void> {
  const home = await homeOf(tx, SHARED_HOME);
  if (home === SHARED_HOME) return;
  if (home !== dataDirectoryId) {
    throw new TorporError(
      'in_use',
      `This database belongs to a server without --node, with the data directory ${home}.`,
      { hint: 'Start that server with --node first. Its sandboxes are kept. Then start this one.' },
    );
  }
  await tx.query('UPDATE home SET id = $1 WHERE one = 1', [SHARED_HOME]);
  for (const table of ['sandboxes', 'checkpoints', 'stored_objects', 'servers']) {
    await tx.query(`UPDATE ${table} SET node = $1 WHERE node = $2`, [name, LOCAL_NODE]);
  }
}

async function refuseSecondName(tx: Transaction, name: string, dataDirectoryId: string): Promise<void> {
  const [other] = await tx.query<{ name: string }>(
    'SELECT name FROM nodes WHERE data_directory_id = $1 AND name <> $2 AND forgotten = 0',
    [dataDirectoryId, name],
  );
  if (other === undefined) return;
  throw new TorporError('in_use', `This data directory is that of the node "${other.name}".`, {
    hint: `Start with --node ${other.name}, or with another data directory.`,
    details: { node: other.name },
  });
}

async function takeName(tx: Transaction, cluster: ClusterOptions, ctx: JoinContext): Promise<number> {
  const { name, address, version, memoryMb, processors } = cluster;
  const known = await lockNode(tx, name);
  if (known !== undefined && known.dataDirectoryId !== ctx.dataDirectoryId && !known.forgotten) {
    throw nameTaken(known);
  }
  const { dataDirectoryId } = ctx;
  await moveFencedRuns(tx, { name, dataDirectoryId, before: known?.dataDirectoryId });
  // A node that was forgotten begins anew: nothing that it wrote before may count.
  const epoch = known === undefined ? 1 : known.forgotten ? known.epoch + 1 : known.epoch;
  // A drain that the server began before it stopped ends with its next start.
  const ends = known?.drain?.untilRestart === true;
  const isKept = known !== undefined && !known.forgotten;
  const cordoned = isKept && (ends ? known.drain?.wasCordoned === true : known.cordoned);
  const draining = isKept && !ends && known.draining;
  const values = [
    name,
    address,
    ctx.dataDirectoryId,
    epoch,
    version,
    memoryMb,
    processors,
    ctx.settings.nodeLeaseMs,
    fingerprintOf(ctx),
    cordoned ? 1 : 0,
    draining ? 1 : 0,
  ];
  if (known === undefined) {
    await tx.query(
      `INSERT INTO nodes (name, address, data_directory_id, epoch, version, memory_mb, processors, lease_until, held_since,
         joined_at, fingerprint, cordoned, draining)
       VALUES ($1, $2, $3, $4, $5, $6, $7, {now} + $8, {now}, {now}, $9, $10, $11)`,
      values,
    );
  } else {
    await tx.query(
      `UPDATE nodes SET address = $2, data_directory_id = $3, epoch = $4, version = $5, memory_mb = $6, processors = $7,
         lease_until = {now} + $8, fingerprint = $9, cordoned = $10, draining = $11,
         drain = CASE WHEN CAST($11 AS {integer}) = 1 THEN drain ELSE NULL END, forgotten = 0, fenced_at = NULL, joined_at = {now},
         held_since = CASE WHEN lease_until > {now} THEN held_since ELSE {now} END
       WHERE name = $1`,
      values,
    );
  }
  await tx.query('UPDATE nodes SET reads_page_layers_since = joined_at WHERE name = $1', [name]);
  return epoch;
}

/** A node that is away counts: it may come back as it was. */
async function lookForEarlierVersions(tx: Transaction, own: string): Promise<boolean> {
  const rows = await tx.query(
    `SELECT name FROM nodes WHERE forgotten = 0 AND name <> $1
       AND (reads_page_layers_since IS NULL OR reads_page_layers_since <> joined_at) LIMIT 1`,
    [own],
  );
  return rows.length > 0;
}

function nameTaken(holder: Node): TorporError {
  const { name, address, dataDirectoryId } = holder;
  const state = isLive(holder) ? 'runs' : 'is away';
  return new TorporError(
    'in_use',
    `The node name "${name}" belongs to the data directory ${dataDirectoryId} at ${address}, which ${state}.`,
    {
      hint: `Choose another --node. If that machine is gone for good: torpor node forget ${name}`,
      details: { node: name, address, dataDirectoryId },
    },
  );
}

/** Deadlines of sandboxes are times of the servers' clocks, so the clocks of the nodes must agree. */
async function refuseWrongClock(db: Database, { clock, settings }: JoinContext): Promise<void> {
  const before = clock.now();
  const there = await databaseNow(db);
  const after = clock.now();
  const off = there < before ? before - there : Math.max(0, there - after);
  if (off <= settings.nodeClockMs) return;
  throw new TorporError(
    'conflict',
    `The clock of this machine differs from that of the database by ${Math.round(off / 1_000)} seconds.`,
    {
      hint: 'Set the clocks of all machines by NTP (chrony, systemd-timesyncd), then start the server again.',
      details: { differenceMs: off },
    },
  );
}

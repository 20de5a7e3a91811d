/** Nodes as the database has them. Whether a lease is live is judged by the database's clock alone. */
import type { Queryable, Row, Transaction } from '../ports/database.ts';

/** How far a drain is; see `drain.ts`. */
export interface DrainProgress {
  readonly startedAt: number;
  readonly endedAt: number | null;
  readonly moved: number;
  readonly replicated: number;
  readonly left: number;
  /** Sandboxes that could not be moved yet, a bounded number of them, and why. */
  readonly failures: readonly { readonly sandboxId: string; readonly why: string }[];
  /** A server that stops began this drain: its next start ends it. */
  readonly untilRestart?: boolean;
  readonly wasCordoned?: boolean;
}

export interface Node {
  readonly name: string;
  readonly address: string;
  readonly dataDirectoryId: string;
  readonly epoch: number;
  readonly leaseUntil: number;
  readonly heldSince: number;
  readonly joinedAt: number;
  readonly fencedAt: number | null;
  readonly version: string;
  readonly memoryMb: number;
  readonly processors: number;
  readonly diskBytes: number;
  readonly diskFreeBytes: number;
  /** What its checkpoints take on its disk, and their bound. Null: it has no store, or no bound. */
  readonly cacheBytes: number | null;
  readonly cacheLimitBytes: number | null;
  readonly fingerprint: Readonly<Record<string, string>>;
  readonly cordoned: boolean;
  readonly draining: boolean;
  readonly drain: DrainProgress | null;
  readonly forgotten: boolean;
  /** The database's clock when the row was read. */
  readonly readAt: number;
}

const COLUMNS = `name, address, data_directory_id, epoch, lease_until, held_since, joined_at, fenced_at, version, memory_mb,
  processors, disk_bytes, disk_free_bytes, cache_bytes, cache_limit_bytes, fingerprint, cordoned, draining, drain, forgotten, {now} AS read_at`;

interface NodeRow extends Row {
  readonly name: string;
  readonly address: string;
  readonly data_directory_id: string;
  readonly epoch: number;
  readonly lease_until: number;
  readonly held_since: number;
  readonly joined_at: number;
  readonly fenced_at: number | null;
  readonly version: string;
  readonly memory_mb: number;
  readonly processors: number;
  readonly disk_bytes: number;
  readonly disk_free_bytes: number;
  readonly cache_bytes: number | null;
  readonly cache_limit_bytes: number | null;
  readonly fingerprint: string;
  readonly cordoned: number;
  readonly draining: number;
  readonly drain: string | null;
  readonly forgotten: number;
  readonly read_at: number;
}

function toNode(row: NodeRow): Node {
  return {
    name: row.name,
    address: row.address,
    dataDirectoryId: row.data_directory_id,
    epoch: row.epoch,
    leaseUntil: row.lease_until,
    heldSince: row.held_since,
    joinedAt: row.joined_at,
    fencedAt: row.fenced_at,
    version: row.version,
    memoryMb: row.memory_mb,
    processors: row.processors,
    diskBytes: row.disk_bytes,
    diskFreeBytes: row.disk_free_bytes,
    cacheBytes: row.cache_bytes,
    cacheLimitBytes: row.cache_limit_bytes,
    fingerprint: JSON.parse(row.fingerprint),
    cordoned: row.cordoned === 1,
    draining: row.draining === 1,
    drain: row.drain === null ? null : JSON.parse(row.drain),
    forgotten: row.forgotten === 1,
    readAt: row.read_at,
  };
}

export function isLive({ leaseUntil, readAt, forgotten }: Node): boolean {
  return !forgotten && leaseUntil > readAt;
}

/** Nodes that were not forgotten, by name. */
export async function listNodes(db: Queryable): Promise<Node[]> {
  const rows = await db.query<NodeRow>(`SELECT ${COLUMNS} FROM nodes WHERE forgotten = 0 ORDER BY name`);
  return rows.map(toNode);
}

/** Finds forgotten nodes too. */
export async function findNode(db: Queryable, name: string): Promise<Node | undefined> {
  const [row] = await db.query<NodeRow>(`SELECT ${COLUMNS} FROM nodes WHERE name = $1`, [name]);
  return row === undefined ? undefined : toNode(row);
}

/** Locks the row until the commit. */
export async function lockNode(tx: Transaction, name: string): Promise<Node | undefined> {
  const [row] = await tx.query<NodeRow>(`SELECT ${COLUMNS} FROM nodes WHERE name = $1 {FOR UPDATE}`, [name]);
  return row === undefined ? undefined : toNode(row);
}

/**
 * Until the commit nothing else can start on the node, or decide whether the node takes sandboxes. The row of the node is not
 * locked: a renewal of its lease must wait for nothing that starts.
 */
export async function lockRoom(tx: Transaction, name: string): Promise<void> {
  await tx.query("SELECT pg_advisory_xact_lock(hashtext('room of node'), hashtext($1))", [name]);
}

export async function databaseNow(db: Queryable): Promise<number> {
  const [row] = await db.query<{ now: number }>('SELECT {now} AS now');
  if (row === undefined) throw new Error('The database has no clock.');
  return row.now;
}

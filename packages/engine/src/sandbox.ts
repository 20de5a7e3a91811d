/** A sandbox as the database has it: its configuration, and its state after the last event. */
import type {
  CheckpointId,
  CheckpointMode,
  DeclaredService,
  Evidence,
  Fallback,
  Loss,
  LostCheckpoint,
  Network,
  OnIdle,
  Resources,
  SandboxId,
  SandboxState,
} from '@torpor/protocol';
import { TorporError } from '@torpor/protocol';
import type { Queryable, Row, Transaction } from './ports/database.ts';

/** The API that a sandbox was created through; clients of that API read the answers of its previews. */
export type Dialect = 'native' | 'e2b';

/** The user and directory of commands that name none, from the image of the template. Absent: those of the runtime. */
export interface CommandDefaults {
  readonly user?: string | undefined;
  readonly workdir?: string | undefined;
}

export function commandDefaults({ user, workdir }: CommandDefaults): CommandDefaults {
  return { user, workdir };
}

/** The part of the configuration that no query searches by. */
interface SandboxConfig extends CommandDefaults {
  readonly env: Readonly<Record<string, string>>;
  readonly services: readonly DeclaredService[];
  readonly network: Network;
  readonly resources: Resources;
  readonly fallback: readonly Fallback[];
  readonly autoResume: boolean;
  readonly preview: 'public' | 'private';
  /** The `Host` that programs get in requests to previews; absent: the host of the preview. */
  readonly requestHost?: string | undefined;
  /** What a pause by timeout or idleness keeps; absent: as much as the runtime can. */
  readonly pauseMode?: CheckpointMode | undefined;
  /** Absent: native. */
  readonly dialect?: Dialect | undefined;
  /** The policy `onIdle` is `stop`. The column `on_idle` says `kill` then, because its constraint does not know `stop`. */
  readonly stopsWhenIdle?: true | undefined;
}

export interface Sandbox {
  readonly id: SandboxId;
  readonly org: string;
  readonly name: string | null;
  readonly runtime: string;
  readonly template: string | null;
  readonly config: SandboxConfig;
  readonly metadata: Readonly<Record<string, string>>;
  readonly timeoutMs: number | null;
  readonly onTimeout: 'pause' | 'kill';
  readonly idleMs: number;
  readonly onIdle: OnIdle;
  readonly state: SandboxState;
  readonly seq: number;
  readonly generation: number;
  readonly baseId: CheckpointId | null;
  readonly checkpointId: CheckpointId | null;
  readonly endsAt: number | null;
  readonly lost: readonly Loss[];
  readonly reason: string | null;
  readonly lostCheckpoint: LostCheckpoint | null;
  readonly observedAt: number;
  readonly evidence: Evidence;
  readonly createdAt: number;
  readonly startedAt: number | null;
  /** 0: never deleted. Null: the policy of the organisation applies. */
  readonly deletePausedAfterMs: number | null;
  /** Since when it has been paused without use; written by the database with the events. */
  readonly unusedSince: number | null;
  /** When it will be deleted; null unless the deletion was announced. */
  readonly deletesAt: number | null;
  /** The limit of its memory; null where the runtime sets no limit. */
  readonly memoryMb: number | null;
  /** Whether the runtime counts the bytes that the sandbox exchanges with the outside. */
  readonly countsEgress: boolean;
  /** The node that runs the sandbox, or has run it last. */
  readonly node: string;
  /** How often a running sandbox is sealed in place; null: not. */
  readonly checkpointEveryMs: number | null;
}

export const SANDBOX_COLUMNS = `id, org, name, runtime, template, config, metadata, timeout_ms, on_timeout, idle_ms,
  on_idle, state, seq, generation, base_id, checkpoint_id, ends_at, lost, reason, lost_checkpoint,
  observed_at, evidence, created_at, started_at, memory_mb, counts_egress, delete_paused_after_ms, unused_since, deletes_at,
  node, checkpoint_every_ms`;

/** A row of the table; its constraints keep these types. */
interface SandboxRow extends Row {
  readonly id: SandboxId;
  readonly org: string;
  readonly name: string | null;
  readonly runtime: string;
  readonly template: string | null;
  readonly config: string;
  readonly metadata: string;
  readonly timeout_ms: number | null;
  readonly on_timeout: Sandbox['onTimeout'];
  readonly idle_ms: number;
  readonly on_idle: Exclude<OnIdle, 'stop'>;
  readonly state: SandboxState;
  readonly seq: number;
  readonly generation: number;
  readonly base_id: CheckpointId | null;
  readonly checkpoint_id: CheckpointId | null;
  readonly ends_at: number | null;
  readonly lost: string;
  readonly reason: string | null;
  readonly lost_checkpoint: string | null;
  readonly observed_at: number;
  readonly evidence: Evidence;
  readonly created_at: number;
  readonly started_at: number | null;
  readonly memory_mb: number | null;
  readonly counts_egress: number;
  readonly delete_paused_after_ms: number | null;
  readonly unused_since: number | null;
  readonly deletes_at: number | null;
  readonly node: string;
  readonly checkpoint_every_ms: number | null;
}

/** `found` has the columns of `SANDBOX_COLUMNS`. */
export function toSandbox(found: Row): Sandbox {
  const row = found as SandboxRow;
  const config: SandboxConfig = JSON.parse(row.config);
  return {
    id: row.id,
    org: row.org,
    name: row.name,
    runtime: row.runtime,
    template: row.template,
    config,
    metadata: JSON.parse(row.metadata),
    timeoutMs: row.timeout_ms,
    onTimeout: row.on_timeout,
    idleMs: row.idle_ms,
    onIdle: config.stopsWhenIdle === true ? 'stop' : row.on_idle,
    state: row.state,
    seq: row.seq,
    generation: row.generation,
    baseId: row.base_id,
    checkpointId: row.checkpoint_id,
    endsAt: row.ends_at,
    lost: JSON.parse(row.lost),
    reason: row.reason,
    lostCheckpoint: row.lost_checkpoint === null ? null : JSON.parse(row.lost_checkpoint),
    observedAt: row.observed_at,
    evidence: row.evidence,
    createdAt: row.created_at,
    startedAt: row.started_at,
    deletePausedAfterMs: row.delete_paused_after_ms,
    unusedSince: row.unused_since,
    deletesAt: row.deletes_at,
    memoryMb: row.memory_mb,
    countsEgress: row.counts_egress === 1,
    node: row.node,
    checkpointEveryMs: row.checkpoint_every_ms,
  };
}

export function noSuchSandbox(id: string): TorporError {
  return new TorporError('not_found', `There is no sandbox ${id}.`, { sandboxId: id });
}

export async function findSandbox(db: Queryable, id: SandboxId): Promise<Sandbox | undefined> {
  const [row] = await db.query(`SELECT ${SANDBOX_COLUMNS} FROM sandboxes WHERE id = $1`, [id]);
  return row === undefined ? undefined : toSandbox(row);
}

/** To a caller, a sandbox of another organisation does not exist (R104). */
export async function getSandbox(db: Queryable, id: SandboxId, org: string): Promise<Sandbox> {
  const sandbox = await findSandbox(db, id);
  if (sandbox === undefined || sandbox.org !== org) throw noSuchSandbox(id);
  return sandbox;
}

/** Locks the row until the commit. Every decision about a sandbox takes this lock first. */
export async function lockSandbox(tx: Transaction, id: SandboxId): Promise<Sandbox> {
  const [row] = await tx.query(`SELECT ${SANDBOX_COLUMNS} FROM sandboxes WHERE id = $1 {FOR UPDATE}`, [id]);
  if (row === undefined) throw noSuchSandbox(id);
  return toSandbox(row);
}

/** The sandbox that a checkpoint belongs to, locked for an event; undefined for a template's checkpoint. */
export async function lockSandboxOf(tx: Transaction, id: SandboxId | null): Promise<Sandbox | undefined> {
  if (id === null || (await findSandbox(tx, id)) === undefined) return undefined;
  return lockSandbox(tx, id);
}

export async function insertSandbox(tx: Transaction, sandbox: Sandbox): Promise<void> {
  await tx.query(
    `INSERT INTO sandboxes (id, org, name, runtime, template, config, metadata, timeout_ms, on_timeout, idle_ms,
       on_idle, state, seq, generation, base_id, checkpoint_id, ends_at, lost, reason, observed_at, evidence,
       created_at, started_at, memory_mb, counts_egress, delete_paused_after_ms, node, checkpoint_every_ms)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'creating', 0, 0, NULL, NULL, NULL, '[]', NULL, $12,
       'ledger', $12, NULL, $13, $14, $15, $16, $17)`,
    [
      sandbox.id,
      sandbox.org,
      sandbox.name,
      sandbox.runtime,
      sandbox.template,
      JSON.stringify(sandbox.config),
      JSON.stringify(sandbox.metadata),
      sandbox.timeoutMs,
      sandbox.onTimeout,
      sandbox.idleMs,
      sandbox.onIdle === 'stop' ? 'kill' : sandbox.onIdle,
      sandbox.createdAt,
      sandbox.memoryMb,
      sandbox.countsEgress ? 1 : 0,
      sandbox.deletePausedAfterMs,
      sandbox.node,
      sandbox.checkpointEveryMs,
    ],
  );
  for (const [key, value] of Object.entries(sandbox.metadata)) {
    await tx.query('INSERT INTO sandbox_metadata (org, key, value, sandbox_id) VALUES ($1, $2, $3, $4)', [
      sandbox.org,
      key,
      value,
      sandbox.id,
    ]);
  }
}

/** Fields that a step writes together with its event. */
export interface SandboxChange {
  readonly config?: SandboxConfig;
  readonly endsAt?: number | null;
  readonly timeoutMs?: number | null;
  readonly lost?: readonly Loss[];
  readonly reason?: string | null;
  readonly lostCheckpoint?: LostCheckpoint | null;
  readonly evidence?: Evidence;
  readonly observedAt?: number;
  readonly startedAt?: number;
}

/** The caller holds the lock of the row. */
export async function updateSandbox(
  tx: Transaction,
  before: Sandbox,
  change: SandboxChange,
): Promise<Sandbox> {
  const after = { ...before, ...change };
  await tx.query(
    `UPDATE sandboxes SET ends_at = $2, timeout_ms = $3, lost = $4, reason = $5, evidence = $6, observed_at = $7,
       started_at = $8, lost_checkpoint = $9 WHERE id = $1`,
    [
      after.id,
      after.endsAt,
      after.timeoutMs,
      JSON.stringify(after.lost),
      after.reason,
      after.evidence,
      after.observedAt,
      after.startedAt,
      after.lostCheckpoint === null ? null : JSON.stringify(after.lostCheckpoint),
    ],
  );
  if (change.config !== undefined) {
    await tx.query('UPDATE sandboxes SET config = $2 WHERE id = $1', [
      after.id,
      JSON.stringify(after.config),
    ]);
  }
  return after;
}

export interface SandboxFilter {
  readonly org?: string;
  /** The sandboxes of one node. */
  readonly node?: string | undefined;
  readonly states?: readonly SandboxState[];
  readonly metadata?: Readonly<Record<string, string>>;
  readonly name?: string | undefined;
  /**
   * True: running, as its owner sees it. False: paused. A sandbox counts as running during a snapshot or a fork,
   * although some runtimes pause it for a moment.
   */
  readonly awake?: boolean | undefined;
}

const NOT_RUNNING = `state IN ('pausing', 'paused', 'resuming')`;
const BEING_COPIED = `EXISTS (SELECT 1 FROM operations o
  WHERE o.sandbox_id = sandboxes.id AND o.ended_at IS NULL AND o.kind IN ('snapshot', 'fork'))`;

function conditionsOf(filter: SandboxFilter, mark: (value: string | number) => string): string[] {
  const conditions: string[] = [];
  if (filter.org !== undefined) conditions.push(`org = ${mark(filter.org)}`);
  if (filter.node !== undefined) conditions.push(`node = ${mark(filter.node)}`);
  if (filter.name !== undefined) conditions.push(`name = ${mark(filter.name)}`);
  if (filter.states !== undefined) conditions.push(`state IN (${filter.states.map(mark).join(', ')})`);
  if (filter.awake === true) conditions.push(`(state = 'running' OR (${NOT_RUNNING} AND ${BEING_COPIED}))`);
  if (filter.awake === false) conditions.push(`(${NOT_RUNNING} AND NOT ${BEING_COPIED})`);
  for (const [key, value] of Object.entries(filter.metadata ?? {})) {
    conditions.push(
      `id IN (SELECT sandbox_id FROM sandbox_metadata
         WHERE sandbox_metadata.org = sandboxes.org AND key = ${mark(key)} AND value = ${mark(value)})`,
    );
  }
  return conditions;
}

/** A page in the order of starts. */
export interface StartedPage {
  readonly order: 'oldest first' | 'newest first';
  /** The last item of the previous page. */
  readonly after?: { readonly startedAt: number; readonly id: string } | undefined;
  /** Leaves out sandboxes that were started before this time. */
  readonly since?: number | undefined;
  readonly template?: string | undefined;
  readonly limit: number;
}

/** One page in the order of starts, without sandboxes that never started. */
export async function listByStart(
  db: Queryable,
  filter: SandboxFilter,
  { order, after, since, template, limit }: StartedPage,
): Promise<Sandbox[]> {
  const params: (string | number)[] = [];
  const mark = (value: string | number) => `$${params.push(value)}`;
  const conditions = ['started_at IS NOT NULL', ...conditionsOf(filter, mark)];
  const [comes, way] = order === 'oldest first' ? ['>', 'ASC'] : ['<', 'DESC'];
  if (since !== undefined) conditions.push(`started_at >= ${mark(since)}`);
  if (template !== undefined) conditions.push(`template = ${mark(template)}`);
  if (after !== undefined) {
    const at = mark(after.startedAt);
    conditions.push(`(started_at ${comes} ${at} OR (started_at = ${at} AND id ${comes} ${mark(after.id)}))`);
  }
  const rows = await db.query(
    `SELECT ${SANDBOX_COLUMNS} FROM sandboxes WHERE ${conditions.join(' AND ')}
     ORDER BY started_at ${way}, id ${way} LIMIT ${mark(limit)}`,
    params,
  );
  return rows.map(toSandbox);
}

/** One page in the order of ids, which is stable while sandboxes come and go. */
export async function listSandboxes(
  db: Queryable,
  filter: SandboxFilter,
  after: string,
  limit: number,
): Promise<Sandbox[]> {
  const params: (string | number)[] = [after, limit];
  const mark = (value: string | number) => `$${params.push(value)}`;
  const conditions = ['id > $1', ...conditionsOf(filter, mark)];
  const rows = await db.query(
    `SELECT ${SANDBOX_COLUMNS} FROM sandboxes WHERE ${conditions.join(' AND ')} ORDER BY id LIMIT $2`,
    params,
  );
  return rows.map(toSandbox);
}

/** Checkpoints as the database has them. */
import {
  type CheckpointFault,
  type CheckpointHealth,
  type CheckpointId,
  type CheckpointState,
  type OperationId,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import { z } from 'zod';
import { listPlaceholders } from '../ledger/placeholders.ts';
import type { CheckpointStore } from '../ports/checkpoint-store.ts';
import type { Queryable, Row, Transaction } from '../ports/database.ts';
import type { Captured, SealedCheckpoint } from '../ports/runtime.ts';
import { releaseObjects } from '../replication/objects.ts';

export interface Checkpoint {
  readonly id: CheckpointId;
  readonly org: string;
  readonly sandboxId: SandboxId | null;
  /** The start of the sandbox that was sealed; null for a template's checkpoint. */
  readonly generation: number | null;
  /** The sandbox's `seq` when the seal began; orders the checkpoints of a sandbox. */
  readonly seq: number;
  readonly parentId: CheckpointId | null;
  readonly runtime: string;
  readonly operationId: OperationId | null;
  readonly state: CheckpointState;
  readonly parts: { readonly files: boolean; readonly memory: boolean };
  readonly needs: Readonly<Record<string, unknown>>;
  readonly external: boolean;
  readonly replayable: boolean;
  readonly recovered: boolean;
  readonly location: string | null;
  readonly bytes: number | null;
  readonly health: CheckpointHealth;
  readonly healthCode: string | null;
  readonly healthDetail: string | null;
  readonly faults: readonly CheckpointFault[];
  readonly verifiedAt: number | null;
  readonly createdAt: number;
  readonly sealedAt: number | null;
  readonly expiresAt: number | null;
  /** When the checkpoint was complete in the store outside this machine. */
  readonly replicatedAt: number | null;
  readonly replicateAfter: number;
  /** Failed tries to replicate it in a row, and the cause of the last one. */
  readonly replicaFailures: number;
  readonly replicaError: ReplicaError | null;
  /** The node that has its bytes on its disk. */
  readonly node: string;
  /** What its memory needs of a machine; null: nothing, or it is not known. */
  readonly fingerprint: string | null;
}

export const CHECKPOINT_COLUMNS = `id, org, sandbox_id, generation, seq, parent_id, runtime, operation_id, state, has_files,
  has_memory, needs, external, replayable, recovered, location, bytes, health, health_code, health_detail,
  faults, verified_at, created_at, sealed_at, expires_at, replicated_at, replicate_after, replica_failures, replica_error, node, fingerprint`;

/** A row of the table; its constraints keep these types. */
interface CheckpointRow extends Row {
  readonly id: CheckpointId;
  readonly org: string;
  readonly sandbox_id: SandboxId | null;
  readonly generation: number | null;
  readonly seq: number;
  readonly parent_id: CheckpointId | null;
  readonly runtime: string;
  readonly operation_id: OperationId | null;
  readonly state: CheckpointState;
  readonly has_files: number;
  readonly has_memory: number;
  readonly needs: string;
  readonly external: number;
  readonly replayable: number;
  readonly recovered: number;
  readonly location: string | null;
  readonly bytes: number | null;
  readonly health: CheckpointHealth;
  readonly health_code: string | null;
  readonly health_detail: string | null;
  readonly faults: string;
  readonly verified_at: number | null;
  readonly created_at: number;
  readonly sealed_at: number | null;
  readonly expires_at: number | null;
  readonly replicated_at: number | null;
  readonly replicate_after: number;
  readonly replica_failures: number;
  readonly replica_error: string | null;
  readonly node: string;
  readonly fingerprint: string | null;
}

/** `found` has the columns of `CHECKPOINT_COLUMNS`. */
export function toCheckpoint(found: Row): Checkpoint {
  const row = found as CheckpointRow;
  return {
    id: row.id,
    org: row.org,
    sandboxId: row.sandbox_id,
    generation: row.generation,
    seq: row.seq,
    parentId: row.parent_id,
    runtime: row.runtime,
    operationId: row.operation_id,
    state: row.state,
    parts: { files: row.has_files === 1, memory: row.has_memory === 1 },
    needs: JSON.parse(row.needs),
    external: row.external === 1,
    replayable: row.replayable === 1,
    recovered: row.recovered === 1,
    location: row.location,
    bytes: row.bytes,
    health: row.health,
    healthCode: row.health_code,
    healthDetail: row.health_detail,
    faults: JSON.parse(row.faults),
    verifiedAt: row.verified_at,
    createdAt: row.created_at,
    sealedAt: row.sealed_at,
    expiresAt: row.expires_at,
    replicatedAt: row.replicated_at,
    replicateAfter: row.replicate_after,
    replicaFailures: row.replica_failures,
    replicaError: parseReplicaError(row.replica_error),
    node: row.node,
    fingerprint: row.fingerprint,
  };
}

const replicaErrorSchema = z.object({ code: z.string(), message: z.string() });

/** The last failed replication of a checkpoint. */
export type ReplicaError = Readonly<z.infer<typeof replicaErrorSchema>>;

/** Reads a nullable column. */
export function parseReplicaError(text: string | null): ReplicaError | null {
  return text === null ? null : replicaErrorSchema.parse(JSON.parse(text));
}

function noSuchCheckpoint(id: string): TorporError {
  return new TorporError('not_found', `There is no checkpoint ${id}.`, { checkpointId: id });
}

export async function findCheckpoint(db: Queryable, id: CheckpointId): Promise<Checkpoint | undefined> {
  const [row] = await db.query(`SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints WHERE id = $1`, [id]);
  return row === undefined ? undefined : toCheckpoint(row);
}

/** The organisation of the built-in templates, which every organisation may use. It has no keys. */
export const SHARED_ORG = '';

/** To a caller, a checkpoint of another organisation does not exist (R104). */
export async function getCheckpoint(db: Queryable, id: CheckpointId, org: string): Promise<Checkpoint> {
  const checkpoint = await findCheckpoint(db, id);
  if (checkpoint === undefined || (checkpoint.org !== org && checkpoint.org !== SHARED_ORG)) {
    throw noSuchCheckpoint(id);
  }
  return checkpoint;
}

/** A sealed checkpoint to start from; a checkpoint in another state is refused with that state. */
export async function getSealed(db: Queryable, id: CheckpointId, org: string): Promise<Checkpoint> {
  return requireSealed(await getCheckpoint(db, id, org));
}

export function requireSealed(checkpoint: Checkpoint): Checkpoint {
  const { id } = checkpoint;
  if (checkpoint.state === 'deleted') {
    throw new TorporError('expired', `Checkpoint ${id} was deleted.`, { checkpointId: id });
  }
  if (checkpoint.state === 'writing') {
    throw new TorporError('conflict', `Checkpoint ${id} is still being written.`, { checkpointId: id });
  }
  return checkpoint;
}

/** Locks the row until the commit, so that two inspections at once do not undo each other. Undefined unless sealed. */
export async function lockSealed(tx: Transaction, id: CheckpointId): Promise<Checkpoint | undefined> {
  const [row] = await tx.query(
    `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints WHERE id = $1 AND state = 'sealed' {FOR UPDATE}`,
    [id],
  );
  return row === undefined ? undefined : toCheckpoint(row);
}

/** The checkpoints with these ids; ids without a checkpoint are left out. */
export async function findCheckpoints(
  db: Queryable,
  ids: readonly CheckpointId[],
): Promise<Map<CheckpointId, Checkpoint>> {
  if (ids.length === 0) return new Map();
  const rows = await db.query(
    `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints WHERE id IN (${listPlaceholders(ids.length)})`,
    ids,
  );
  return new Map(rows.map(toCheckpoint).map((checkpoint) => [checkpoint.id, checkpoint]));
}

/** All sealed checkpoints of a node, or those of one organisation, in pages by id. */
export async function listSealed(
  db: Queryable,
  node: string,
  org: string | undefined,
  after: string,
  limit: number,
): Promise<Checkpoint[]> {
  const rows = await db.query(
    `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints
     WHERE state = 'sealed' AND node = $3 AND id > $1 ${org === undefined ? '' : 'AND org = $4'} ORDER BY id LIMIT $2`,
    org === undefined ? [after, limit, node] : [after, limit, node, org],
  );
  return rows.map(toCheckpoint);
}

/** Writes the row before any byte exists, so that everything in the store has a row that explains it. */
export async function insertWriting(
  tx: Transaction,
  checkpoint: Pick<
    Checkpoint,
    'id' | 'org' | 'sandboxId' | 'generation' | 'seq' | 'parentId' | 'runtime' | 'operationId' | 'node'
  >,
  now: number,
): Promise<void> {
  await tx.query(
    `INSERT INTO checkpoints (id, org, sandbox_id, generation, parent_id, runtime, operation_id, state, sealed,
       has_files, has_memory, needs, external, replayable, recovered, health, created_at, seq, node)
     VALUES ($1, $2, $3, $4, $5, $6, $7, 'writing', 0, 0, 0, '{}', 0, 1, 0, 'unknown', $8, $9, $10)`,
    [
      checkpoint.id,
      checkpoint.org,
      checkpoint.sandboxId,
      checkpoint.generation,
      checkpoint.parentId,
      checkpoint.runtime,
      checkpoint.operationId,
      now,
      checkpoint.seq,
      checkpoint.node,
    ],
  );
}

/** What is known of a checkpoint's bytes once they are durable. */
export interface SealResult {
  readonly captured: Captured;
  readonly location: string;
  readonly bytes: number;
  /** What its memory needs of a machine, where the runtime says so. */
  readonly fingerprint?: string | undefined;
}

/** The bytes are durable already; with this commit the checkpoint exists. */
export async function markSealed(
  tx: Transaction,
  id: CheckpointId,
  sealed: SealResult,
  extra: { readonly recovered: boolean; readonly kept: boolean; readonly expiresAt: number | null },
  now: number,
): Promise<void> {
  const { captured } = sealed;
  await tx.query(
    `UPDATE checkpoints SET state = 'sealed', sealed = 1, has_files = $2, has_memory = $3, needs = $4, external = $5,
       replayable = $6, recovered = $7, location = $8, bytes = $9, health = 'ok', sealed_at = $10, expires_at = $11,
       kept = $12, fingerprint = $13
     WHERE id = $1 AND state = 'writing'`,
    [
      id,
      captured.parts.files ? 1 : 0,
      captured.parts.memory ? 1 : 0,
      JSON.stringify(captured.needs),
      captured.external === null ? 0 : 1,
      captured.external === null || captured.external.replayable ? 1 : 0,
      extra.recovered ? 1 : 0,
      sealed.location,
      sealed.bytes,
      now,
      extra.expiresAt,
      extra.kept ? 1 : 0,
      captured.parts.memory ? (sealed.fingerprint ?? null) : null,
    ],
  );
  for (const other of captured.dependsOn) {
    await tx.query('INSERT INTO checkpoint_stands_on (checkpoint_id, other_id) VALUES ($1, $2)', [id, other]);
  }
}

/**
 * Marks the checkpoint as deleted, and returns whether it was not deleted before. Foreign keys refuse this while
 * anything refers to the checkpoint. The bytes are removed afterwards.
 */
export async function markDeleted(tx: Transaction, id: CheckpointId, now: number): Promise<boolean> {
  await tx.query('DELETE FROM checkpoint_stands_on WHERE checkpoint_id = $1', [id]);
  await tx.query('DELETE FROM checkpoint_jobs WHERE checkpoint_id = $1', [id]);
  const rows = await tx.query(
    `UPDATE checkpoints SET state = 'deleted', sealed = 0, deleted_at = $2
     WHERE id = $1 AND state <> 'deleted' RETURNING id`,
    [id, now],
  );
  // After the row of the checkpoint, as a replication locks them too.
  await releaseObjects(tx, id);
  return rows.length > 0;
}

/** The checkpoints that an operation has begun and not finished. */
export async function findWriting(db: Queryable, operationId: OperationId): Promise<Checkpoint[]> {
  const rows = await db.query(
    `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints WHERE operation_id = $1 AND state = 'writing'`,
    [operationId],
  );
  return rows.map(toCheckpoint);
}

/** The checkpoint that an operation has sealed, if there is one. */
export async function findSealedBy(db: Queryable, operationId: OperationId): Promise<Checkpoint | undefined> {
  const [row] = await db.query(
    `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints WHERE operation_id = $1 AND state = 'sealed'`,
    [operationId],
  );
  return row === undefined ? undefined : toCheckpoint(row);
}

export async function refuseTakenName(tx: Transaction, sandboxId: SandboxId, name: string): Promise<void> {
  const [taken] = await tx.query<{ checkpoint_id: string }>(
    'SELECT checkpoint_id FROM checkpoint_names WHERE sandbox_id = $1 AND name = $2',
    [sandboxId, name],
  );
  if (taken === undefined) return;
  throw new TorporError('conflict', `The sandbox has a checkpoint named "${name}" already.`, {
    sandboxId,
    checkpointId: taken.checkpoint_id,
    hint: 'Choose another name, or delete the checkpoint that has it.',
  });
}

export async function nameCheckpoint(
  tx: Transaction,
  sandboxId: SandboxId,
  checkpointId: CheckpointId,
  name: string,
  now: number,
): Promise<void> {
  await refuseTakenName(tx, sandboxId, name);
  await tx.query(
    'INSERT INTO checkpoint_names (sandbox_id, name, checkpoint_id, created_at) VALUES ($1, $2, $3, $4)',
    [sandboxId, name, checkpointId, now],
  );
}

export async function namesOf(db: Queryable, id: CheckpointId): Promise<string[]> {
  const rows = await db.query<{ name: string }>(
    'SELECT name FROM checkpoint_names WHERE checkpoint_id = $1 ORDER BY name',
    [id],
  );
  return rows.map((row) => row.name);
}

/** Sealed checkpoints only, newest first. */
export async function listCheckpoints(
  db: Queryable,
  sandboxId: SandboxId,
  before: number | null,
  limit: number,
): Promise<Checkpoint[]> {
  const rows = await db.query(
    `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints
     WHERE sandbox_id = $1 AND state = 'sealed' AND seq < $2
     ORDER BY seq DESC LIMIT $3`,
    [sandboxId, before ?? Number.MAX_SAFE_INTEGER, limit],
  );
  return rows.map(toCheckpoint);
}

/** Sealed checkpoints of the organisation that have this name, of any sandbox, newest first. */
export async function listNamed(
  db: Queryable,
  org: string,
  name: string,
  limit: number,
): Promise<Checkpoint[]> {
  const rows = await db.query(
    `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints
     WHERE org = $1 AND state = 'sealed' AND id IN (SELECT checkpoint_id FROM checkpoint_names WHERE name = $2)
     ORDER BY created_at DESC, id LIMIT $3`,
    [org, name, limit],
  );
  return rows.map(toCheckpoint);
}

/** The checkpoint as a runtime needs it. */
export function toSealedCheckpoint(store: CheckpointStore, checkpoint: Checkpoint): SealedCheckpoint {
  const { id, parts, needs, external } = checkpoint;
  return { id, parts, needs, path: external ? null : store.path(id) };
}

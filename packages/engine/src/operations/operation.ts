/** Operations as the database has them: one durable request on one sandbox. */
import {
  type Actor,
  type CheckpointId,
  type ErrorBody,
  EVENT_DATA,
  type EventType,
  type Fallback,
  type OperationId,
  type OperationKind,
  type OperationOutcome,
  type Reason,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import { listPlaceholders } from '../ledger/placeholders.ts';
import type { Queryable, Row, Transaction } from '../ports/database.ts';
import { parseStoredError } from '../stored-error.ts';
import {
  type IdempotentKind,
  operationBodySchema,
  type RequestOf,
  type ResultOf,
} from './operation-kinds.ts';

/** What operations of every kind have. */
interface OperationFields {
  readonly id: OperationId;
  readonly org: string;
  /** Who asked for it; null when the server did. */
  readonly by: Actor | null;
  readonly sandboxId: SandboxId;
  /** The operation that made this one: the fork, for the creates of its children. */
  readonly parentId: OperationId | null;
  readonly reason: Reason;
  readonly serverId: string;
  readonly fence: number;
  readonly phase: string | null;
  readonly startedAt: number;
  readonly deadlineAt: number;
  readonly endedAt: number | null;
  readonly outcome: OperationOutcome | null;
  readonly error: ErrorBody | null;
}

/** One operation; its kind says what its request and its result look like. */
export type Operation<K extends OperationKind = OperationKind> = {
  [P in K]: OperationFields & {
    readonly kind: P;
    readonly request: RequestOf<P>;
    readonly result: ResultOf<P> | null;
  };
}[K];

/** An operation that succeeded. */
export type Succeeded<K extends OperationKind = OperationKind> = {
  [P in K]: Omit<Operation<P>, 'result'> & { readonly kind: P; readonly result: ResultOf<P> };
}[K];

/** The checkpoint that the caller named to start from; only some kinds of operations can name one. */
export function requestedCheckpoint(operation: Operation): CheckpointId | undefined {
  return startsSandbox(operation) ? operation.request.from : undefined;
}

/** The fallbacks that the caller allowed for this start. The fallbacks of a fork's request are for its children. */
export function requestedFallback(operation: Operation): readonly Fallback[] | undefined {
  return startsSandbox(operation) ? operation.request.fallback : undefined;
}

function startsSandbox(operation: Operation): operation is Operation<'create' | 'resume' | 'rollback'> {
  return operation.kind === 'create' || operation.kind === 'resume' || operation.kind === 'rollback';
}

const COLUMNS = `id, org, key_id, subject, sandbox_id, parent_id, kind, request, reason, owner, fence, phase, started_at, deadline_at, ended_at,
  outcome, result, error`;

interface OperationRow extends Row {
  readonly id: OperationId;
  readonly org: string;
  readonly key_id: string | null;
  readonly subject: string | null;
  readonly sandbox_id: SandboxId;
  readonly parent_id: OperationId | null;
  readonly kind: OperationKind;
  readonly request: string;
  readonly reason: Reason;
  readonly owner: string;
  readonly fence: number;
  readonly phase: string | null;
  readonly started_at: number;
  readonly deadline_at: number;
  readonly ended_at: number | null;
  readonly outcome: OperationOutcome | null;
  readonly result: string | null;
  readonly error: string | null;
}

function toOperation(row: OperationRow): Operation {
  return {
    id: row.id,
    org: row.org,
    by: actorOf(row),
    sandboxId: row.sandbox_id,
    parentId: row.parent_id,
    reason: row.reason,
    serverId: row.owner,
    fence: row.fence,
    phase: row.phase,
    startedAt: row.started_at,
    deadlineAt: row.deadline_at,
    endedAt: row.ended_at,
    outcome: row.outcome,
    error: parseStoredError(row.error),
    ...operationBodySchema.parse({
      kind: row.kind,
      request: JSON.parse(row.request),
      result: row.result === null ? null : JSON.parse(row.result),
    }),
  };
}

/** The actor in the columns of a row. */
export function actorOf({ key_id, subject }: Row): Actor | null {
  return typeof key_id === 'string' && typeof subject === 'string' ? { keyId: key_id, subject } : null;
}

/** This server may no longer write for the operation: it was superseded, or another server took it over. */
export class FenceLost extends Error {
  override readonly name = 'FenceLost';
  readonly operationId: OperationId;

  constructor(operationId: OperationId) {
    super(`This server does not hold the fence of operation ${operationId} any more.`);
    this.operationId = operationId;
  }
}

export async function insertOperation(tx: Transaction, operation: Operation): Promise<void> {
  await tx.query(
    `INSERT INTO operations (id, org, sandbox_id, kind, request, reason, owner, fence, phase, started_at, deadline_at,
       parent_id, key_id, subject)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
    [
      operation.id,
      operation.org,
      operation.sandboxId,
      operation.kind,
      JSON.stringify(operation.request),
      operation.reason,
      operation.serverId,
      operation.fence,
      operation.phase,
      operation.startedAt,
      operation.deadlineAt,
      operation.parentId,
      operation.by?.keyId ?? null,
      operation.by?.subject ?? null,
    ],
  );
}

export async function findOperation(db: Queryable, id: OperationId): Promise<Operation | undefined> {
  const [row] = await db.query<OperationRow>(`SELECT ${COLUMNS} FROM operations WHERE id = $1`, [id]);
  return row === undefined ? undefined : toOperation(row);
}

export async function findOpenOperation(db: Queryable, sandboxId: SandboxId): Promise<Operation | undefined> {
  const [row] = await db.query<OperationRow>(
    `SELECT ${COLUMNS} FROM operations WHERE sandbox_id = $1 AND ended_at IS NULL`,
    [sandboxId],
  );
  return row === undefined ? undefined : toOperation(row);
}

/** In the order of their creation. */
export async function listChildren(db: Queryable, id: OperationId): Promise<Operation[]> {
  const rows = await db.query<OperationRow>(
    `SELECT ${COLUMNS} FROM operations WHERE parent_id = $1 ORDER BY started_at, id`,
    [id],
  );
  return rows.map(toOperation);
}

/** The events by which a sandbox comes into the state that each of these requests asks for. */
const EVENTS_OF_STATE: Readonly<Record<IdempotentKind, readonly EventType[]>> = {
  pause: ['sandbox.paused', 'sandbox.recovered'],
  resume: ['sandbox.started', 'sandbox.resumed'],
  kill: ['sandbox.killed'],
};

/**
 * The operation that put the sandbox into the state that a request asks for: by the ledger, because an operation of
 * another kind may have done so (a snapshot that could not start the sandbox again has paused it). Undefined when that
 * operation failed: its outcome does not answer the request.
 */
export async function findOperationOfState(
  db: Queryable,
  sandboxId: SandboxId,
  requested: IdempotentKind,
): Promise<Operation | undefined> {
  const types = EVENTS_OF_STATE[requested];
  const [row] = await db.query<OperationRow>(
    `SELECT ${COLUMNS} FROM operations
     WHERE outcome = 'succeeded' AND id = (
       SELECT operation_id FROM events
       WHERE sandbox_id = $1 AND type IN (${listPlaceholders(types.length, 2)})
       ORDER BY seq DESC LIMIT 1)`,
    [sandboxId, ...types],
  );
  return row === undefined ? undefined : toOperation(row);
}

/** Newest first, after `last`. */
export async function listOperations(
  db: Queryable,
  org: string,
  sandboxId: SandboxId | undefined,
  last: Pick<Operation, 'id' | 'startedAt'> | undefined,
  limit: number,
): Promise<Operation[]> {
  const params = [org, last?.startedAt ?? Number.MAX_SAFE_INTEGER, last?.id ?? '', limit];
  const rows = await db.query<OperationRow>(
    `SELECT ${COLUMNS} FROM operations
     WHERE org = $1 ${sandboxId === undefined ? '' : 'AND sandbox_id = $5'}
       AND (started_at < $2 OR (started_at = $2 AND id < $3))
     ORDER BY started_at DESC, id DESC LIMIT $4`,
    sandboxId === undefined ? params : [...params, sandboxId],
  );
  return rows.map(toOperation);
}

/** The operation that is open on a sandbox. */
export type OpenOperation = Pick<Operation, 'id' | 'kind'>;

export async function openOperationsOf(
  db: Queryable,
  sandboxIds: readonly SandboxId[],
): Promise<Map<SandboxId, OpenOperation>> {
  if (sandboxIds.length === 0) return new Map();
  const rows = await db.query<{ id: OperationId; kind: OperationKind; sandbox_id: SandboxId }>(
    `SELECT id, kind, sandbox_id FROM operations WHERE ended_at IS NULL AND sandbox_id IN (${listPlaceholders(sandboxIds.length)})`,
    sandboxIds,
  );
  return new Map(rows.map(({ id, kind, sandbox_id }) => [sandbox_id, { id, kind }]));
}

/**
 * Throws `FenceLost` unless this server holds the operation's fence. In a transaction that has locked the sandbox's row
 * this stays true until the commit: every end or takeover of an operation locks that row too. Outside of a transaction
 * it is true only at this moment.
 */
export async function requireFence(db: Queryable, operation: Operation): Promise<void> {
  const [row] = await db.query(
    'SELECT id FROM operations WHERE id = $1 AND fence = $2 AND ended_at IS NULL',
    [operation.id, operation.fence],
  );
  if (row === undefined) throw new FenceLost(operation.id);
}

export async function setPhase(tx: Transaction, operation: Operation, phase: string): Promise<void> {
  await tx.query('UPDATE operations SET phase = $2 WHERE id = $1', [operation.id, phase]);
}

export type Ending<K extends OperationKind = OperationKind> =
  | { readonly outcome: 'succeeded'; readonly result: ResultOf<K> }
  | { readonly outcome: 'failed' | 'superseded'; readonly error: TorporError };

/**
 * Ends an operation; the caller holds the fence. A retryable failure frees the idempotency key of the request, so
 * that the caller can try again under it.
 */
export async function endOperation<K extends OperationKind>(
  tx: Transaction,
  operation: { readonly id: OperationId; readonly kind: K },
  now: number,
  ending: Ending<K>,
): Promise<void> {
  const result = ending.outcome === 'succeeded' ? JSON.stringify(ending.result) : null;
  const error = ending.outcome === 'succeeded' ? null : JSON.stringify(ending.error.toBody());
  await tx.query('UPDATE operations SET ended_at = $2, outcome = $3, result = $4, error = $5 WHERE id = $1', [
    operation.id,
    now,
    ending.outcome,
    result,
    error,
  ]);
  if (ending.outcome === 'failed' && ending.error.retryable) {
    await tx.query('DELETE FROM idempotency_keys WHERE operation_id = $1', [operation.id]);
  }
  tx.notify('ledger');
}

/**
 * Open operations whose server sends no heartbeats any more, or that this server has left open. This server's newest
 * operations are left out: they were just accepted and are about to be driven. Only of sandboxes of this node.
 */
export async function listOrphaned(
  db: Queryable,
  now: number,
  server: { readonly id: string; readonly node: string; readonly leaseMs: number },
  after: string,
  limit: number,
): Promise<Operation[]> {
  const rows = await db.query<OperationRow>(
    `SELECT ${COLUMNS} FROM operations
     WHERE ended_at IS NULL AND id > $4
       AND EXISTS (SELECT 1 FROM sandboxes s WHERE s.id = operations.sandbox_id AND s.node = $6)
       AND ((owner = $2 AND started_at <= $3)
         OR NOT EXISTS (SELECT 1 FROM servers WHERE servers.id = owner AND lease_until > $1))
     ORDER BY id LIMIT $5`,
    [now, server.id, now - server.leaseMs, after, limit, server.node],
  );
  return rows.map(toOperation);
}

/** Takes the fence, so that writes of the former server fail from now on. The caller holds the sandbox's lock. */
export async function takeOver(
  tx: Transaction,
  operation: Operation,
  serverId: string,
  deadlineAt: number,
): Promise<Operation> {
  const [row] = await tx.query<{ fence: number }>(
    `UPDATE operations SET owner = $3, fence = fence + 1, deadline_at = $4
     WHERE id = $1 AND fence = $2 AND ended_at IS NULL RETURNING fence`,
    [operation.id, operation.fence, serverId, deadlineAt],
  );
  if (row === undefined) throw new FenceLost(operation.id);
  return { ...operation, serverId, fence: row.fence, deadlineAt };
}

/** The error that the callers of a failed operation get. */
export function outcomeError(operation: Operation): TorporError {
  const body = operation.error;
  if (body === null) return new TorporError('internal', `Operation ${operation.id} ended without an error.`);
  return TorporError.fromBody(body).with({ operationId: operation.id, sandboxId: operation.sandboxId });
}

export interface Phase {
  readonly phase: string;
  readonly at: number;
  readonly detail?: string;
}

const phaseSchema = EVENT_DATA['operation.phase'].pick({ phase: true, detail: true });

/** The phases that the operation has reached, from the ledger. */
export async function phasesOf(db: Queryable, operation: Operation): Promise<Phase[]> {
  const rows = await db.query<{ data: string; at: number }>(
    `SELECT data, at FROM events
     WHERE sandbox_id = $1 AND operation_id = $2 AND type = 'operation.phase' ORDER BY seq`,
    [operation.sandboxId, operation.id],
  );
  return rows.map(({ data, at }) => {
    const { phase, detail } = phaseSchema.parse(JSON.parse(data));
    return { phase, at, ...(detail === undefined ? {} : { detail }) };
  });
}

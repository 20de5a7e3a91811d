/** Writes lines of the ledger. The database projects each onto its sandbox; see the migrations. */
import type {
  CheckpointId,
  EventData,
  EventId,
  EventType,
  OperationId,
  SandboxState,
} from '@torpor/protocol';
import type { SqlValue, Transaction } from '../ports/database.ts';
import type { Sandbox } from '../sandbox.ts';
import { placeholders } from './placeholders.ts';

export interface NewEvent<T extends EventType = EventType> {
  readonly id: EventId;
  readonly at: number;
  readonly type: T;
  readonly data: EventData<T>;
  readonly operationId: OperationId | null;
  /** What the sandbox is after it; what is not named stays. */
  readonly state?: SandboxState | undefined;
  readonly generation?: number | undefined;
  readonly baseId?: CheckpointId | null | undefined;
  readonly checkpointId?: CheckpointId | null | undefined;
}

/** How many lines one statement writes, so that it stays below the number of parameters that SQLite takes. */
const EVENTS_AT_ONCE = 500;

/**
 * Appends lines of one sandbox in their order and returns the sandbox as it is after the last. The caller holds the
 * sandbox's lock.
 *
 * Keep it the last thing in a transaction: from here on the counter row is locked, and every other
 * transaction that writes a line waits for this one's commit.
 */
export async function appendEvents(
  tx: Transaction,
  sandbox: Sandbox,
  lines: readonly NewEvent[],
): Promise<Sandbox> {
  let after = sandbox;
  for (let at = 0; at < lines.length; at += EVENTS_AT_ONCE) {
    after = await appendPage(tx, after, lines.slice(at, at + EVENTS_AT_ONCE));
  }
  tx.notify('ledger');
  return after;
}

async function appendPage(tx: Transaction, sandbox: Sandbox, lines: readonly NewEvent[]): Promise<Sandbox> {
  const [head] = await tx.query<{ position: number }>(
    'UPDATE ledger_head SET position = position + $1 WHERE one = 1 RETURNING position',
    [lines.length],
  );
  if (head === undefined) throw new Error('The ledger has no head row.');
  const params: SqlValue[] = [];
  let position = head.position - lines.length;
  let before = sandbox;
  for (const line of lines) {
    const after = sandboxAfter(before, line);
    params.push(...valuesOf(before, after, line, ++position));
    before = after;
  }
  await tx.query(
    `INSERT INTO events (sandbox_id, seq, position, id, org, at, type, previous_seq, previous_state, state,
       generation, base_id, checkpoint_id, operation_id, data)
     VALUES ${placeholders(lines.length, params.length / lines.length)}`,
    params,
  );
  return before;
}

function sandboxAfter(sandbox: Sandbox, line: NewEvent): Sandbox {
  return {
    ...sandbox,
    seq: sandbox.seq + 1,
    state: line.state ?? sandbox.state,
    generation: line.generation ?? sandbox.generation,
    baseId: line.baseId === undefined ? sandbox.baseId : line.baseId,
    checkpointId: line.checkpointId === undefined ? sandbox.checkpointId : line.checkpointId,
  };
}

function valuesOf(before: Sandbox, after: Sandbox, line: NewEvent, position: number): SqlValue[] {
  return [
    before.id,
    after.seq,
    position,
    line.id,
    before.org,
    line.at,
    line.type,
    before.seq === 0 ? null : before.seq,
    before.seq === 0 ? null : before.state,
    after.state,
    after.generation,
    after.baseId,
    after.checkpointId,
    line.operationId,
    JSON.stringify(line.data),
  ];
}

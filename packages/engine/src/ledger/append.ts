/** Writes lines of the ledger. The database projects each onto its sandbox; see the migrations. */
import type {
  CheckpointId,
  EventData,
  EventId,
  EventType,
  OperationId,
  SandboxState,
} from '@torpor/protocol';
import type { Transaction } from '../ports/database.ts';
import type { Sandbox } from '../sandbox.ts';

export interface Line<T extends EventType = EventType> {
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

/**
 * Appends one line and returns the sandbox as it is after it. The caller holds the sandbox's lock.
 *
 * Keep it the last thing in a transaction: from here on the counter row is locked, and every other
 * transaction that writes a line waits for this one's commit.
 */
export async function append<T extends EventType>(
  tx: Transaction,
  sandbox: Sandbox,
  line: Line<T>,
): Promise<Sandbox> {
  const after: Sandbox = {
    ...sandbox,
    seq: sandbox.seq + 1,
    state: line.state ?? sandbox.state,
    generation: line.generation ?? sandbox.generation,
    baseId: line.baseId === undefined ? sandbox.baseId : line.baseId,
    checkpointId: line.checkpointId === undefined ? sandbox.checkpointId : line.checkpointId,
  };
  const [head] = await tx.query<{ position: number }>(
    'UPDATE ledger_head SET position = position + 1 WHERE one = 1 RETURNING position',
  );
  if (head === undefined) throw new Error('The ledger has no head row.');
  await tx.query(
    `INSERT INTO events (sandbox_id, seq, position, id, org, at, type, previous_seq, previous_state, state,
       generation, base_id, checkpoint_id, operation_id, data)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`,
    [
      sandbox.id,
      after.seq,
      head.position,
      line.id,
      sandbox.org,
      line.at,
      line.type,
      sandbox.seq === 0 ? null : sandbox.seq,
      sandbox.seq === 0 ? null : sandbox.state,
      after.state,
      after.generation,
      after.baseId,
      after.checkpointId,
      line.operationId,
      JSON.stringify(line.data),
    ],
  );
  tx.notify('ledger');
  return after;
}

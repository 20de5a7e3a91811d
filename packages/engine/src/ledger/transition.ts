/**
 * Writes events of a sandbox to the ledger, and the transitions of its lifecycle that they record. A trigger of the database
 * projects each event onto its sandbox; see the migrations.
 */
import {
  type Actor,
  type CheckpointId,
  type EventData,
  type EventId,
  type EventType,
  type OperationId,
  type SandboxState,
  TorporError,
} from '@torpor/protocol';
import type { Context } from '../context.ts';
import { type Command, decide } from '../lifecycle.ts';
import type { SqlValue, Transaction } from '../ports/database.ts';
import { type Sandbox, type SandboxChange, updateSandbox } from '../sandbox.ts';
import { placeholders } from './placeholders.ts';

export interface NewEvent<T extends EventType = EventType> {
  readonly id: EventId;
  readonly at: number;
  readonly type: T;
  readonly data: EventData<T>;
  readonly operationId: OperationId | null;
  /** Who asked for the change, when it is not part of an operation: an operation has its own record. */
  readonly by?: Actor | undefined;
  /** What the event changes of the sandbox. Undefined leaves the field as it is. */
  readonly state?: SandboxState | undefined;
  readonly generation?: number | undefined;
  readonly baseId?: CheckpointId | null | undefined;
  readonly checkpointId?: CheckpointId | null | undefined;
}

/** What an event has beside its type and data, and the changes that are written with it. */
interface EventFields {
  readonly operationId: OperationId | null;
  readonly by?: NewEvent['by'];
  /** Changes of the sandbox's row. */
  readonly change?: SandboxChange;
  readonly generation?: number;
  readonly baseId?: NewEvent['baseId'];
  readonly checkpointId?: NewEvent['checkpointId'];
  /** Events of the sandbox's jobs, appended after this event. */
  readonly jobEvents?: readonly NewEvent[];
}

/**
 * Applies one transition of the lifecycle in the caller's transaction: writes the event, the state and the fields
 * that belong to it. Throws `conflict` before any write when the lifecycle does not allow the command.
 */
export async function applyTransition<T extends EventType>(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  command: Command,
  event: T,
  data: EventData<T>,
  fields: EventFields,
): Promise<Sandbox> {
  const decision = decide(sandbox.state, command);
  if (decision.kind !== 'step' || decision.event !== event) {
    throw new TorporError('conflict', `A sandbox that is ${sandbox.state} cannot take "${command}".`, {
      sandboxId: sandbox.id,
    });
  }
  return recordEvent(ctx, tx, sandbox, event, data, { ...fields, state: decision.to });
}

/** Appends an event, with or without a change of state. */
export async function recordEvent<T extends EventType>(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  event: T,
  data: EventData<T>,
  fields: EventFields & Pick<NewEvent, 'state'>,
): Promise<Sandbox> {
  const { change, jobEvents = [], ...eventFields } = fields;
  const changed = change === undefined ? sandbox : await updateSandbox(tx, sandbox, change);
  const newEvent: NewEvent = {
    id: ctx.ids.next('evt'),
    at: ctx.clock.now(),
    type: event,
    data,
    ...eventFields,
  };
  return appendEvents(tx, changed, [newEvent, ...jobEvents]);
}

/** How many events one statement writes: SQLite limits the number of parameters. */
const EVENTS_AT_ONCE = 500;

/**
 * Appends events of one sandbox in their order and returns the sandbox after the last event. The caller holds the
 * sandbox's lock.
 *
 * Call this last in a transaction: from here on the counter row is locked, and every other transaction that appends an
 * event waits for the commit.
 */
export async function appendEvents(
  tx: Transaction,
  sandbox: Sandbox,
  events: readonly NewEvent[],
): Promise<Sandbox> {
  let after = sandbox;
  for (let at = 0; at < events.length; at += EVENTS_AT_ONCE) {
    after = await appendPage(tx, after, events.slice(at, at + EVENTS_AT_ONCE));
  }
  tx.notify('ledger');
  return after;
}

async function appendPage(tx: Transaction, sandbox: Sandbox, events: readonly NewEvent[]): Promise<Sandbox> {
  const [head] = await tx.query<{ position: number }>(
    'UPDATE ledger_head SET position = position + $1 WHERE one = 1 RETURNING position',
    [events.length],
  );
  if (head === undefined) throw new Error('The ledger has no head row.');
  const params: SqlValue[] = [];
  let position = head.position - events.length;
  let before = sandbox;
  for (const event of events) {
    const after = sandboxAfter(before, event);
    params.push(...valuesOf(before, after, event, ++position));
    before = after;
  }
  await tx.query(
    `INSERT INTO events (sandbox_id, seq, position, id, org, at, type, previous_seq, previous_state, state,
       generation, base_id, checkpoint_id, operation_id, key_id, subject, data)
     VALUES ${placeholders(events.length, params.length / events.length)}`,
    params,
  );
  return before;
}

function sandboxAfter(sandbox: Sandbox, event: NewEvent): Sandbox {
  return {
    ...sandbox,
    seq: sandbox.seq + 1,
    state: event.state ?? sandbox.state,
    generation: event.generation ?? sandbox.generation,
    baseId: event.baseId === undefined ? sandbox.baseId : event.baseId,
    checkpointId: event.checkpointId === undefined ? sandbox.checkpointId : event.checkpointId,
  };
}

function valuesOf(before: Sandbox, after: Sandbox, event: NewEvent, position: number): SqlValue[] {
  return [
    before.id,
    after.seq,
    position,
    event.id,
    before.org,
    event.at,
    event.type,
    before.seq === 0 ? null : before.seq,
    before.seq === 0 ? null : before.state,
    after.state,
    after.generation,
    after.baseId,
    after.checkpointId,
    event.operationId,
    event.by?.keyId ?? null,
    event.by?.subject ?? null,
    JSON.stringify(event.data),
  ];
}

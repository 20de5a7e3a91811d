/** Writes events of a sandbox, and the transitions of its lifecycle that they record. */
import { type EventData, type EventType, type OperationId, TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { type Command, decide } from '../lifecycle.ts';
import type { Transaction } from '../ports/database.ts';
import { type Sandbox, type SandboxChange, updateSandbox } from '../sandbox.ts';
import { appendEvents, type NewEvent } from './append.ts';

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

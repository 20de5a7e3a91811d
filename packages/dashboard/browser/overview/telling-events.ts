/**
 * The events that a person wants to read: what was done and what went wrong, once. Steps in between, and what follows
 * from another event, are left out; the timeline of a sandbox has them all. Pure functions.
 */
import type { EventView } from '@torpor/sdk';

/** The begin of an operation tells nothing more once it has ended. */
const BEGINS: ReadonlySet<string> = new Set([
  'sandbox.created',
  'sandbox.pausing',
  'sandbox.resuming',
  'sandbox.killing',
]);

/** A snapshot of a running sandbox may be a pause and a wake. No visitor waited for that wake. */
function ofSnapshots(events: readonly EventView[]): ReadonlySet<string | null> {
  const begins = events.filter(
    ({ type, data }) => type === 'sandbox.resuming' && data['reason'] === 'snapshot',
  );
  return new Set(begins.map(({ operationId }) => operationId));
}

/** `events` are newest first, and so is the result. */
export function tellingEvents(events: readonly EventView[], most: number): EventView[] {
  const told: EventView[] = [];
  const snapshots = ofSnapshots(events);
  /** The operations of which a later event is known. */
  const ended = new Set<string>();
  for (const event of events) {
    if (told.length === most) break;
    if (event.type === 'operation.phase') continue;
    const { operationId } = event;
    const isOver = operationId !== null && ended.has(operationId);
    if (operationId !== null) ended.add(operationId);
    if (BEGINS.has(event.type) && isOver) continue;
    if (event.type === 'sandbox.resumed' && snapshots.has(operationId)) continue;
    if (!isConsequence(event)) told.push(event);
  }
  return told;
}

function isConsequence({ type, data }: EventView): boolean {
  // Jobs sleep and wake with their sandbox, and checkpoints that nothing needs are deleted by rule.
  if (type === 'job.suspended' || type === 'job.resumed') return true;
  return type === 'checkpoint.deleted' && data['why'] === 'unreferenced';
}

/** Without what is the same for every event of its type. */
export function briefly(event: EventView): EventView {
  const { endsAt: _, lost, reason, ...data } = event.data;
  // Connections to the outside never outlast a pause.
  const lostMore = Array.isArray(lost) ? lost.filter((one) => one !== 'connections') : [];
  const why = reason === 'snapshot' ? {} : { reason };
  return { ...event, data: { ...data, ...why, lost: lostMore } } as EventView;
}

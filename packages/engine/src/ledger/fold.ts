/** The state of a sandbox as its events tell it, from the first to the last. */
import type { CheckpointId, EventView, SandboxState } from '@torpor/protocol';
import { NEXT_STATES } from '@torpor/protocol';

export interface Folded {
  readonly seq: number;
  readonly state: SandboxState;
  readonly generation: number;
  readonly checkpointId: CheckpointId | null;
}

/** Throws at the first event that cannot follow the one before it. */
export function fold(events: readonly EventView[]): Folded | null {
  let folded: Folded | null = null;
  for (const event of events) {
    folded = follow(folded, event);
  }
  return folded;
}

function follow(before: Folded | null, event: EventView): Folded {
  const wrong = (why: string) => new Error(`Event ${event.id} (seq ${event.seq}, ${event.type}): ${why}.`);
  if (event.seq !== (before?.seq ?? 0) + 1) throw wrong(`it follows seq ${before?.seq ?? 0}`);
  if (event.previousState !== (before?.state ?? null))
    throw wrong(`the state before it was ${before?.state}`);
  const legal =
    before === null
      ? event.state === 'creating'
      : event.state === before.state || NEXT_STATES[before.state].includes(event.state);
  if (!legal) throw wrong(`${before?.state ?? 'nothing'} cannot become ${event.state}`);
  if (event.generation < (before?.generation ?? 0)) throw wrong('the generation went back');
  if (event.state === 'paused' && event.checkpointId === null)
    throw wrong('it is paused without a checkpoint');
  const { seq, state, generation, checkpointId } = event;
  return { seq, state, generation, checkpointId };
}

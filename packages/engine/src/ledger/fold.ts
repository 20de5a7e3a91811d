/** Computes the state of a sandbox from its events, from the first to the last. */
import type { CheckpointId, EventView, SandboxState } from '@torpor/protocol';
import { NEXT_STATES } from '@torpor/protocol';

export interface FoldedState {
  readonly seq: number;
  readonly state: SandboxState;
  readonly generation: number;
  readonly checkpointId: CheckpointId | null;
}

/** Throws at the first event that cannot follow the one before it. */
export function fold(events: readonly EventView[]): FoldedState | null {
  let folded: FoldedState | null = null;
  for (const event of events) {
    folded = foldNext(folded, event);
  }
  return folded;
}

function foldNext(before: FoldedState | null, event: EventView): FoldedState {
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

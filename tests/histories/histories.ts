/** Runs many histories and reports how to repeat a failure. */
import type { DatabaseKind } from '@torpor/engine/testing';
import fc from 'fast-check';
import { Player } from './play.ts';
import { history } from './steps.ts';
import { HistoryWorld } from './world.ts';

/** A world serves many histories, each in its own organisation. After a failure, shrinking uses a fresh world. */
export async function runHistories(
  kind: DatabaseKind,
  count: number,
  seed?: number,
  progress: (played: number) => void = () => {},
): Promise<void> {
  // Alternates between a runtime that snapshots a running sandbox and one that must pause it.
  let inPlace = false;
  const next = () => {
    inPlace = !inPlace;
    return HistoryWorld.make(kind, inPlace);
  };
  let world = await next();
  let played = 0;
  try {
    await fc.assert(
      fc.asyncProperty(history, async (steps) => {
        if (++played % 50 === 0) {
          await world.dispose();
          world = await next();
          progress(played);
        }
        try {
          await new Player(world).play(steps);
        } catch (thrown) {
          await world.dispose();
          world = await HistoryWorld.make(kind, inPlace);
          throw thrown;
        }
      }),
      { numRuns: count, endOnFailure: false, ...(seed === undefined ? {} : { seed }) },
    );
  } finally {
    await world.dispose();
  }
}

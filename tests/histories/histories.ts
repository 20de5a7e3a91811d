/** Runs many histories and says how to repeat the one that went wrong. */
import type { DatabaseKind } from '@torpor/engine/testing';
import fc from 'fast-check';
import { Player } from './play.ts';
import { history } from './steps.ts';
import { HistoryWorld } from './world.ts';

/** A world serves many histories, each under an organisation of its own; a failure gets a fresh one to shrink in. */
export async function runHistories(kind: DatabaseKind, count: number, seed?: number): Promise<void> {
  let world = await HistoryWorld.make(kind);
  let played = 0;
  try {
    await fc.assert(
      fc.asyncProperty(history, async (steps) => {
        if (++played % 100 === 0) {
          await world.dispose();
          world = await HistoryWorld.make(kind);
        }
        try {
          await new Player(world).play(steps);
        } catch (thrown) {
          await world.dispose();
          world = await HistoryWorld.make(kind);
          throw thrown;
        }
      }),
      { numRuns: count, endOnFailure: false, ...(seed === undefined ? {} : { seed }) },
    );
  } finally {
    await world.dispose();
  }
}

/** Runs many histories of several nodes and reports how to repeat a failure. */
import { prepareStatements } from '@torpor/engine/testing';
import fc from 'fast-check';
import { NodePlayer } from './node-player.ts';
import { nodeHistory } from './node-steps.ts';
import { NodeWorld } from './node-world.ts';

/** How many histories a world serves, each in its own organisation. After a failure, shrinking uses a fresh world. */
const PER_WORLD = 100;

export async function runNodeHistories(
  count: number,
  seed?: number,
  progress: (played: number) => void = () => {},
): Promise<void> {
  const endPreparing = prepareStatements();
  let world = await NodeWorld.make();
  let played = 0;
  const renew = async () => {
    await world.dispose();
    world = await NodeWorld.make();
  };
  try {
    await fc.assert(
      fc.asyncProperty(nodeHistory, async (steps) => {
        if (++played % PER_WORLD === 0) {
          await renew();
          progress(played);
        }
        try {
          await new NodePlayer(world).play(steps);
        } catch (thrown) {
          // Making the history shorter may take hours, and may not succeed when it fails only sometimes.
          console.error(`history ${played}:`, thrown, JSON.stringify(steps), await world.describe());
          await renew();
          throw thrown;
        }
      }),
      { numRuns: count, endOnFailure: false, ...(seed === undefined ? {} : { seed }) },
    );
  } finally {
    await world.dispose();
    endPreparing();
  }
}

/** The runtime contract on gVisor, or a line that says why it is not tested here. */
import { describeRuntimeContract } from '@torpor/engine/testing';
import { afterAll, describe, it } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from './gvisor-world.ts';

/** `only` names the tests that are to run; without it all of them do. */
export async function describeGvisorContract(only?: readonly string[]): Promise<void> {
  const why = await whyNoGvisor();
  if (why !== null) {
    describe('the gVisor runtime', () => {
      it.skip(`is not tested here: ${why}`);
    });
    return;
  }
  let world: Promise<GvisorWorld> | undefined;
  afterAll(async () => (await world)?.close());
  const make = () => {
    world ??= makeGvisorWorld();
    return world;
  };
  describeRuntimeContract('gvisor', make, only);
}

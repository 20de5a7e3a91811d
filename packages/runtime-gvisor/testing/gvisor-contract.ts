/** Runs the runtime contract on gVisor, or skips it and says why. */
import { describeRuntimeContract } from '@torpor/engine/testing';
import { afterAll, describe, it } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from './gvisor-world.ts';

/** `only` names the tests to run; all of them when undefined. */
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

import { describeRuntimeContract } from '@torpor/engine/testing';
import { afterAll, describe, it } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../../testing/gvisor-world.ts';

const why = await whyNoGvisor();
if (why !== null) {
  describe('the gVisor runtime', () => {
    it.skip(`is not tested here: ${why}`);
  });
} else {
  let world: Promise<GvisorWorld> | undefined;
  afterAll(async () => (await world)?.close());
  describeRuntimeContract('gvisor', () => {
    world ??= makeGvisorWorld();
    return world;
  });
}

import { describeRuntimeContract } from '@torpor/engine/testing';
import { afterAll, beforeAll, describe } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { type ProviderWorld, providerWorld } from './provider-world.ts';

const providers = (await whyNoGvisor()) === null ? (['process', 'gvisor'] as const) : (['process'] as const);

/** `npm run test:e2b`: the `e2b` runtime at a second Torpor passes the contract suite of all runtimes. */
describe.each(providers)('at a Torpor on %s', (provider) => {
  let world: ProviderWorld;
  beforeAll(async () => {
    world = await providerWorld(provider);
  }, 120_000);
  afterAll(() => world.close(), 120_000);

  describeRuntimeContract('e2b', async () => world);
});

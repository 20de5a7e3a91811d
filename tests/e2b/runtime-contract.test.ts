import { describeRuntimeContract } from '@torpor/engine/testing';
import { afterAll, beforeAll } from 'vitest';
import { type ProviderWorld, providerWorld } from './provider-world.ts';

/** A part of the contract suite; `npm run test:e2b` runs all of it at several kinds of providers. */
const SOME = [
  'runs a new instance from a template without memory',
  'fail when the instance is dead or unknown',
  'keeps the files for a start elsewhere',
  'starts two instances that are then independent',
];

let world: ProviderWorld;
beforeAll(async () => {
  world = await providerWorld('process');
}, 120_000);
afterAll(() => world.close(), 120_000);

describeRuntimeContract('e2b, at a Torpor on process', async () => world, SOME);

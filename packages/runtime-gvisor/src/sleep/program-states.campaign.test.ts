/** Pauses and resumes a program in every kind of state, on each runsc of the host. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { nextOf, paused, startFrom, unhurried } from '@torpor/engine/testing';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../../testing/gvisor-world.ts';
import { MACHINE_WIDE } from '../binaries/build.mjs';
import { dayOf, isRecent } from '../binaries/releases.mjs';
import { begun, resultOf } from './testing/begun-state.ts';
import { PROGRAM_STATES } from './testing/program-states.ts';

const isMissing = (await whyNoGvisor()) !== null;
const versions = existsSync(MACHINE_WIDE)
  ? readdirSync(MACHINE_WIDE).filter((name) => dayOf(name) !== null)
  : [];

describe.skipIf(isMissing).each(versions)('on runsc %s', (version) => {
  let world: GvisorWorld;

  beforeAll(async () => {
    const runsc = { program: join(MACHINE_WIDE, version, 'runsc'), version };
    world = await makeGvisorWorld({ runsc, warmPoolSize: 0, hostResourcePoolSize: 0 });
    await world.sharedTemplate();
  }, 120_000);
  afterEach(() => world.dispose());
  afterAll(() => world.close());

  const keptStates = PROGRAM_STATES.filter(({ onOld }) => onOld || isRecent(dayOf(version)));
  const otherStates = PROGRAM_STATES.filter((state) => !keptStates.includes(state));

  it.each(keptStates)('$name survives a pause with memory', async (state) => {
    const instance = await world.started();
    await begun(world, instance, state);

    const asleep = await paused(world, instance, 'memory');
    const back = nextOf(instance);
    await startFrom(world, back, asleep, 'memory');

    expect(await resultOf(world, back, state)).toBe('ok');
  });

  it.each(otherStates)('$name cannot be paused with memory, and the attempt loses nothing', async (state) => {
    const instance = await world.started();
    await begun(world, instance, state);

    const asleep = await paused(world, instance, 'memory').catch(() => undefined);
    if (asleep === undefined) {
      await world.runtime.thaw(instance, null, unhurried);
      expect(await resultOf(world, instance, state)).toBe('ok');
      return;
    }
    // The image was written, its restore fails, and the files can be started.
    const back = nextOf(instance);
    const bound = AbortSignal.any([unhurried, AbortSignal.timeout(20_000)]);
    const spec = { org: 'default', env: {}, services: [], network: {}, resources: {} };
    await expect(world.runtime.start(back, asleep, 'memory', spec, bound)).rejects.toThrow();
    await world.runtime.destroy(back, unhurried);
    await startFrom(world, nextOf(back), asleep, 'files');
  });
});

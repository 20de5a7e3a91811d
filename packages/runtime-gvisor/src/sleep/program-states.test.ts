/** The short form of the campaign: pauses and resumes some of the programs together, in one sandbox. */
import { nextOf, paused, startFrom } from '@torpor/engine/testing';
import { expect, it } from 'vitest';
import { chosenRunsc } from '../../testing/chosen-runsc.ts';
import { makeGvisorWorld, whyNoGvisor } from '../../testing/gvisor-world.ts';
import { isRecent } from '../binaries/releases.mjs';
import { begun, resultOf } from './testing/begun-state.ts';
import { PROGRAM_STATES } from './testing/program-states.ts';

const isMissing = (await whyNoGvisor()) !== null;
const onRecent = isRecent((await chosenRunsc())?.version.releaseDate ?? null);
/** On a recent runsc, the states that an old one cannot keep; on an old one, some of those that it can. */
const some = PROGRAM_STATES.filter(({ onOld }) => onOld !== onRecent).slice(0, 7);

it.skipIf(isMissing)(
  'programs with open, deleted files and the like survive a pause with memory (R94)',
  {
    timeout: 120_000,
  },
  async () => {
    const world = await makeGvisorWorld({ warmPoolSize: 0, hostResourcePoolSize: 0 });
    try {
      const instance = await world.started();
      for (const state of some) await begun(world, instance, state);

      const asleep = await paused(world, instance, 'memory');
      const back = nextOf(instance);
      await startFrom(world, back, asleep, 'memory');

      const results = new Map<string, string>();
      for (const state of some) results.set(state.name, await resultOf(world, back, state));
      expect(results).toEqual(new Map(some.map(({ name }) => [name, 'ok'])));
    } finally {
      await world.dispose();
      await world.close();
    }
  },
);

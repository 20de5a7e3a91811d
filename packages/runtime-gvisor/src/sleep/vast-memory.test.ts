/** A program that reserves far more memory than the host has, and touches two pages of it. */
import { failureOf, nextOf, paused, sealing, startFrom, unhurried } from '@torpor/engine/testing';
import { expect, it } from 'vitest';
import { chosenRunsc } from '../../testing/chosen-runsc.ts';
import { makeGvisorWorld, whyNoGvisor } from '../../testing/gvisor-world.ts';
import { readsUntouchedMemory } from '../binaries/releases.mjs';

const isMissing = (await whyNoGvisor()) !== null;
const isOld = readsUntouchedMemory((await chosenRunsc())?.version.releaseDate ?? null);
const PROGRAM =
  'import mmap,time; m=mmap.mmap(-1, 200<<30); m[0]=1; m[150<<30]=2; print("held", flush=True); time.sleep(10000)';

it.skipIf(isMissing)(
  'a shared mapping of 200 GiB is captured, or refused before the checkpoint begins (R94)',
  { timeout: 120_000 },
  async () => {
    const world = await makeGvisorWorld({ warmPoolSize: 0, hostResourcePoolSize: 0 });
    try {
      const instance = await world.started();
      await world.begin(instance, `exec python3 -c '${PROGRAM}'`);
      if (isOld) {
        await world.runtime.freeze(instance, unhurried);
        const capture = sealing(world, (staging) =>
          world.runtime.capture(instance, 'memory', staging, unhurried),
        );
        expect(await failureOf(capture)).toMatchObject({ code: 'capability_unsupported' });
        await world.runtime.thaw(instance, null, unhurried);
        expect((await world.run(instance, 'pgrep -c python3')).output.trim()).toBe('1');
        return;
      }
      const asleep = await paused(world, instance, 'memory');
      const back = nextOf(instance);
      await startFrom(world, back, asleep, 'memory');
      expect((await world.run(back, 'pgrep -c python3')).output.trim()).toBe('1');
    } finally {
      await world.dispose();
      await world.close();
    }
  },
);

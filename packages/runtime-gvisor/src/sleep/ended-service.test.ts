/** A service whose command has done its work and ended, as the start commands of templates often do. */
import { NO_SPEC, newInstance, nextOf, paused, startFrom, unhurried } from '@torpor/engine/testing';
import { serviceTag } from '@torpor/envd';
import { expect, it } from 'vitest';
import { makeGvisorWorld, whyNoGvisor } from '../../testing/gvisor-world.ts';

const isMissing = (await whyNoGvisor()) !== null;
const once = { name: 'once', command: 'echo began >> /home/user/log' };

it.skipIf(isMissing)(
  'a service that has ended with exit code 0 does not run again while the memory lasts',
  { timeout: 120_000 },
  async () => {
    const world = await makeGvisorWorld({ warmPoolSize: 0, hostResourcePoolSize: 0 });
    const spec = { ...NO_SPEC, services: [once] };
    try {
      const instance = await world.started(spec);
      const log = async (of: typeof instance) => {
        await (await world.agent(of)).nextEnd([serviceTag('once')], { signal: unhurried });
        return (await world.run(of, 'cat ~/log')).output;
      };
      expect(await log(instance)).toBe('began\n');

      const asleep = await paused(world, instance, 'memory');
      const [next, other] = [nextOf(instance), newInstance()];
      for (const back of [next, other]) {
        await startFrom(world, back, asleep, 'memory', spec);
        expect(await log(back)).toBe('began\n');
      }
    } finally {
      await world.dispose();
      await world.close();
    }
  },
);

/** A data directory with two runsc programs: a sandbox keeps the one that wrote its memory. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { NO_SPEC, newInstance, nextOf, paused, startFrom, unhurried } from '@torpor/engine/testing';
import { describe, expect, it } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../testing/gvisor-world.ts';
import { MACHINE_WIDE, pinnedProgram } from './binaries/build.mjs';
import { dayOf, isRecent, PINNED } from './binaries/releases.mjs';
import { needsOf } from './checkpoint-needs.ts';

const OLD = oldRunsc();
const isMissing = (await whyNoGvisor()) !== null || OLD === undefined || !existsSync(pinnedProgram());

/** Debian's runsc, where the setup has installed it. */
function oldRunsc(): { readonly program: string; readonly version: string } | undefined {
  const names = existsSync(MACHINE_WIDE) ? readdirSync(MACHINE_WIDE) : [];
  const version = names.find((name) => dayOf(name) !== null && !isRecent(dayOf(name)));
  return version === undefined ? undefined : { program: join(MACHINE_WIDE, version, 'runsc'), version };
}

describe.skipIf(isMissing)('with two runsc', () => {
  it('a sandbox keeps its memory after a newer one is adopted, and uses the newer one when it starts from files', {
    timeout: 120_000,
  }, async () => {
    const world: GvisorWorld = await makeGvisorWorld(OLD === undefined ? {} : { runsc: OLD });
    try {
      const instance = await world.started();
      await world.program.write(instance, '/tmp/a', 'kept');
      const counted = await world.program.counter?.(instance);
      const built = { program: pinnedProgram(), version: PINNED.name };
      const template = await world.sharedTemplate();
      expect(await world.runtime.isOutdated?.(template)).toBe(false);

      await world.adoptRunsc(built);
      expect(await world.runtime.isOutdated?.(template)).toBe(true);
      const asleep = await paused(world, instance, 'memory');
      const back = nextOf(instance);
      await startFrom(world, back, asleep, 'memory', NO_SPEC);
      expect(await world.program.counter?.(back)).toBe(counted);

      const again = await paused(world, back, 'memory');
      expect(needsOf(again).runsc).toBe(needsOf(template).runsc);
      const fresh = newInstance();
      await startFrom(world, fresh, again, 'files', NO_SPEC);
      expect(await world.program.read(fresh, '/tmp/a')).toBe('kept');
      const newer = await paused(world, fresh, 'memory');
      expect(needsOf(newer).runsc).not.toBe(needsOf(template).runsc);
      expect(await world.runtime.checkUsable(newer, unhurried)).toEqual({ usable: true });
    } finally {
      await world.dispose();
      await world.close();
    }
  });
});

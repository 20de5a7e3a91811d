import type { Engine, Instance, SealedCheckpoint } from '@torpor/engine';
import { type FreshDatabase, freshDatabase } from '@torpor/engine/testing';
import type { SandboxView } from '@torpor/protocol';
import { DEFAULT_RUNTIME_SETTINGS } from '@torpor/runtime-shared';
import { engineOn } from '@torpor/runtime-shared/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type GvisorWorld,
  MEMORY_DAMAGES,
  makeGvisorWorld,
  whyNoGvisor,
} from '../../testing/gvisor-world.ts';

const why = await whyNoGvisor();
const caller = { org: 'org' };

describe.skipIf(why !== null)('a gVisor sandbox whose memory image is damaged while it sleeps', () => {
  let world: GvisorWorld;
  let fresh: FreshDatabase;
  let engine: Engine;
  beforeAll(async () => {
    // A sandbox that stays in memory does not need its image.
    world = await makeGvisorWorld({ settings: { ...DEFAULT_RUNTIME_SETTINGS, warmKeepMs: 0 } });
    fresh = await freshDatabase('sqlite');
    engine = engineOn(world, fresh);
    await engine.start({ rounds: false });
  }, 120_000);
  afterAll(async () => {
    await engine.stop();
    await fresh.dispose();
    await world.dispose();
    await world.close();
  });

  const instanceOf = ({ id, generation }: SandboxView): Instance => ({ sandboxId: id, generation });

  for (const [what, damage] of Object.entries(MEMORY_DAMAGES)) {
    it(`starts from its files and reports the lost processes: ${what} (R91, R92, R93)`, async () => {
      const sandbox = (await engine.create(caller, {})).sandbox;
      await world.program.write(instanceOf(sandbox), '/home/user/kept', what);
      const { checkpoint } = await engine.pause(caller, sandbox.id);
      await damage({ path: world.store.path(checkpoint.id) } as SealedCheckpoint);

      await engine.inspectCheckpoints();
      expect(await engine.get('org', sandbox.id)).toMatchObject({
        state: 'paused',
        checkpointHealth: { health: 'damaged', parts: ['memory'] },
      });
      expect(await engine.hasUsableCheckpoint('org', sandbox.id)).toBe(true);
      const resumed = await engine.resume(caller, sandbox.id);
      expect(resumed).toMatchObject({
        source: { checkpointId: checkpoint.id, kind: 'files' },
        lost: ['processes'],
      });
      expect(await world.program.read(instanceOf(resumed.sandbox), '/home/user/kept')).toBe(what);
      await engine.kill(caller, sandbox.id);
    }, 120_000);
  }
});

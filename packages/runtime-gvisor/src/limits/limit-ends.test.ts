/** The engine learns from the runtime that a limit has ended a sandbox: no round of the reconciler runs here. */
import { freshDatabase } from '@torpor/engine/testing';
import { engineOn } from '@torpor/runtime-shared/testing';
import { expect, it } from 'vitest';
import { makeGvisorWorld, whyNoGvisor } from '../../testing/gvisor-world.ts';

const isMissing = (await whyNoGvisor()) !== null;

it.skipIf(isMissing)(
  'a sandbox that used too much memory becomes paused without its processes, without a round of the reconciler (R92)',
  { timeout: 120_000 },
  async () => {
    const world = await makeGvisorWorld({ warmPoolSize: 0, hostResourcePoolSize: 0 });
    const fresh = await freshDatabase('sqlite');
    const engine = engineOn(world, fresh);
    try {
      await engine.start({ rounds: false });
      const { id, generation } = (await engine.create({ org: 'org' }, { resources: { memoryMb: 128 } }))
        .sandbox;
      const hog = 'const kept = []; for (let i = 0; i < 40; i++) kept.push(Buffer.alloc(10 * 2 ** 20, 1))';
      const command = `${await world.node()} -e '${hog}; setTimeout(() => {}, 60_000)'`;
      await expect(world.run({ sandboxId: id, generation }, command)).rejects.toThrow();
      // Reads only the ledger, and does not observe the sandbox.
      const stateOf = async () => (await engine.find(id))?.sandbox.state;
      await expect.poll(stateOf, { timeout: 60_000, interval: 50 }).toBe('paused');
      expect(await engine.get('org', id)).toMatchObject({
        lost: ['processes', 'connections'],
        reason: 'it used more than the 128 MB of memory that it may have',
      });
    } finally {
      await engine.stop();
      await world.dispose();
      await world.close();
      await fresh.dispose();
    }
  },
);

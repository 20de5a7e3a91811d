import { describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { makeDataDir } from '../crash/torpor-process.ts';
import { runWake } from './wake.ts';

const noGvisor = await whyNoGvisor();
const runtimes = noGvisor === null ? (['process', 'gvisor'] as const) : (['process'] as const);

/** `npm run test:wake`: 2,000 requests and 20 WebSocket conversations while their sandbox is paused 50 times. */
describe.each(runtimes)('with sandboxes in %s', (runtime) => {
  it('no request fails while the sandbox is paused 50 times', async () => {
    const dataDir = await makeDataDir();
    try {
      const campaign = { runtime, requests: 2_000, clients: 8, conversations: 20, pauses: 50 };
      const report = await runWake(dataDir.path, campaign);
      console.log(JSON.stringify({ runtime, ...report }));
      expect(report).toMatchObject({ requests: 2_000, pauses: 50, wakes: 50 });
    } finally {
      await dataDir.remove();
    }
  });
});

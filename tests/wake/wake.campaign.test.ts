import { expect, it } from 'vitest';
import { makeDataDir } from '../crash/torpor-process.ts';
import { runWake } from './wake.ts';

/** `npm run test:wake`: 2,000 requests and 20 WebSocket conversations while their sandbox sleeps 50 times. */
it('zero failed requests', async () => {
  const dataDir = await makeDataDir();
  try {
    const report = await runWake(dataDir.path, { requests: 2_000, hands: 8, conversations: 20, pauses: 50 });
    console.log(JSON.stringify(report));
    expect(report).toMatchObject({ requests: 2_000, pauses: 50, wakes: 50 });
  } finally {
    await dataDir.remove();
  }
});

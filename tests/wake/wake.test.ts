import { expect, it } from 'vitest';
import { makeDataDir } from '../crash/torpor-process.ts';
import { runWake } from './wake.ts';

/** The short form of `npm run test:wake`. */
it('no request fails, and no conversation breaks, while the sandbox is paused again and again', {
  timeout: 120_000,
}, async () => {
  const dataDir = await makeDataDir();
  try {
    const report = await runWake(dataDir.path, {
      runtime: 'process',
      requests: 200,
      clients: 4,
      conversations: 4,
      pauses: 4,
    });
    expect(report).toMatchObject({ requests: 200, pauses: 4, wakes: 4 });
    expect(report.messages).toBeGreaterThan(4);
  } finally {
    await dataDir.remove();
  }
});

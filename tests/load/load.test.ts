import { expect, it } from 'vitest';
import { makeDataDir } from '../crash/torpor-process.ts';
import { runLoad } from './load.ts';

/** The short form of `npm run test:load`. */
it('many concurrent workers leave nothing stuck, lost or running', { timeout: 120_000 }, async () => {
  const dataDir = await makeDataDir();
  try {
    const { done } = await runLoad(dataDir.path, { sandboxes: 6, workers: 6, ms: 10_000 });
    for (const what of ['write', 'pause', 'resume']) expect(done[what], what).toBeGreaterThan(0);
  } finally {
    await dataDir.remove();
  }
});
